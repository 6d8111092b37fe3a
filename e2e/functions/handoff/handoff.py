"""The examples of docs/reference/socket.md in Python: see main.go."""

import hashlib
import http.client
import http.server
import os
import socket
import tempfile
import urllib.parse


class Daemon(http.client.HTTPConnection):
    """The node's daemon, by the socket that it has put into the sandbox."""

    def __init__(self):
        super().__init__("headstart")

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["HEADSTART_SOCKET"])


def body(request):
    """The input is the request's body."""
    return 200, digest(blocks(request.rfile, int(request.headers["content-length"])))


def file(request):
    """The input is a file, complete, for programs that seek or want a path."""
    name = os.path.join(os.environ["HEADSTART_INPUT_DIR"], os.path.basename(request.headers["x-headstart-request"]))
    with open(name, "rb") as f:
        return 200, digest(iter(lambda: f.read(65536), b""))


def read(request):
    """The input, or a range of it, comes by the socket, each byte as soon as it is there."""
    daemon = Daemon()
    daemon.request("GET", "/input/" + os.path.basename(request.headers["x-headstart-request"]))
    answer = daemon.getresponse()
    return answer.status, digest(iter(lambda: answer.read(65536), b""))


def stream(request, to):
    """What comes is passed to another function while it comes."""
    daemon, length = Daemon(), request.headers["content-length"]
    daemon.request("POST", f"/call/-/{to}/body", body=blocks(request.rfile, int(length)), headers={
        "content-length": length,
        "x-headstart-request": request.headers["x-headstart-request"],  # on whose behalf
    })
    answer = daemon.getresponse()
    return answer.status, answer.read()


def reference(request, to):
    """Another function gets an object of its store; not a byte of it comes by here."""
    daemon = Daemon()
    daemon.request("POST", f"/call/-/{to}/read", headers={
        "x-headstart-input": request.headers["x-object"],  # such as s3://videos/camera-7/1.mjpeg
        "x-headstart-request": request.headers["x-headstart-request"],
    })
    answer = daemon.getresponse()
    return answer.status, answer.read()


def output(request):
    """What is written to a file becomes an object, of which not a byte comes by here."""
    with tempfile.NamedTemporaryFile(dir=os.environ["HEADSTART_OUTPUT_DIR"]) as f:  # which is memory of this container
        f.writelines(blocks(request.rfile, int(request.headers["content-length"])))
        f.flush()
        os.fchmod(f.fileno(), 0o644)  # the daemon reads it
        to = urllib.parse.urlencode({"to": request.headers["x-object"]})  # such as s3://videos/camera-7/1.mp4
        daemon = Daemon()
        daemon.request("POST", f"/output/{os.path.basename(f.name)}?{to}")
        answer = daemon.getresponse()
        return answer.status, answer.read()


def blocks(f, length):
    """The next length bytes of f, in blocks."""
    while length > 0 and (block := f.read(min(length, 65536))):
        length -= len(block)
        yield block


def digest(content):
    h = hashlib.sha256()
    for block in content:
        h.update(block)
    return h.hexdigest().encode()


class Function(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        status, answer = globals()[url.path[1:]](self, **query)
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Function).serve_forever()
