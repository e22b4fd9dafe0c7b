# Flask behind Werkzeug's server: flask_app.py PORT
import sys

from flask import Flask, jsonify, request
from werkzeug.serving import make_server

app = Flask(__name__)


@app.route("/tenants/<tenant>/login")
@app.route("/")
@app.route("/<path:rest>")
def answer(tenant=None, rest=None):
    auth = request.headers.get("Authorization", "").split()  # as flask-jwt-extended does
    return jsonify(
        path=[request.path] + ([f"/tenants/{tenant}/login"] if tenant else []),
        query=[request.args.get("token")],
        cookie=[request.cookies.get("session")],
        token=auth[1:2] if auth[:1] and auth[0].lower() == "bearer" else [],
        header=[request.headers.get("X-Api-Key")],
    )


make_server("127.0.0.1", int(sys.argv[1]), app, threaded=True).serve_forever()
