# Django behind gunicorn: gunicorn django_app:application
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path, re_path

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x")


def answer(request, tenant=None):
    auth = request.headers.get("Authorization", "").split()  # as Django REST framework does
    return JsonResponse({
        "path": [request.path, request.path_info] + ([f"/tenants/{tenant}/login"] if tenant else []),
        "query": [request.GET.get("token")],
        "cookie": [request.COOKIES.get("session")],
        "token": auth[1:2] if auth[:1] and auth[0].lower() == "bearer" else [],
        "header": [request.headers.get("X-Api-Key")],
    })


urlpatterns = [path("tenants/<str:tenant>/login", answer), re_path("", answer)]
application = get_wsgi_application()
