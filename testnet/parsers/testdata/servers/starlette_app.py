# Starlette behind uvicorn: uvicorn starlette_app:app
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


async def answer(request):
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")  # as FastAPI does
    tenant = request.path_params.get("tenant")
    return JSONResponse({
        "path": [request.scope["path"], request.url.path] + ([f"/tenants/{tenant}/login"] if tenant else []),
        "query": [request.query_params.get("token")],
        "cookie": [request.cookies.get("session")],
        "token": [token.strip()] if scheme.lower() == "bearer" else [],
        "header": [request.headers.get("X-Api-Key")],
    })


app = Starlette(routes=[Route("/tenants/{tenant}/login", answer), Route("/{rest:path}", answer)])
