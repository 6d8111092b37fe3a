"""A function as people write it: it reads the file and leaves the request's body alone.

reader.py HTTP/1.0|HTTP/1.1|wsgi DIR prints its port and serves until its input ends.
"""
import hashlib, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from wsgiref.simple_server import WSGIRequestHandler, make_server

kind, directory = sys.argv[1:]


def answer(name):
    with open(os.path.join(directory, os.path.basename(name)), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest().encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = kind

    def do_GET(self):
        body = answer(self.headers["x-headstart-input-file"])
        self.send_response(200)
        if kind == "HTTP/1.1":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def app(environ, start_response):
    body = answer(environ["HTTP_X_HEADSTART_INPUT_FILE"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]


if kind == "wsgi":
    server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
else:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
