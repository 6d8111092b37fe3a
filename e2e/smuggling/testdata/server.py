"""A function on the HTTP server that comes with Python. It says what it was asked at /flush."""
import base64
import http.server
import json
import sys
import threading

seen, open_, lock = [], 0, threading.Condition()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def process_request(self, request, address):
        global open_
        with lock:
            open_ += 1
        super().process_request(request, address)

    def process_request_thread(self, request, address):
        global open_
        super().process_request_thread(request, address)
        with lock:
            open_ -= 1
            lock.notify_all()

    def handle_error(self, request, address):
        pass  # a connection that breaks


def text(s):
    return base64.b64encode(s.encode("latin-1")).decode()


class Function(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def flush(self):
        with lock:
            lock.wait_for(lambda: open_ == 1, 20)
            if open_ != 1:
                seen.append({"method": text("connections stay open")})
            said = json.dumps(seen).encode()
            seen.clear()
        self.answer(said)

    def answer(self, said):
        self.send_response(200)
        self.send_header("x-echo", self.headers.get("x-headstart-request", ""))
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def handle_any(self):
        if self.path == "/flush" and self.headers.get("x-flush"):
            self.close_connection = True
            return self.flush()
        one = {"method": text(self.command), "target": text(self.path),
               "header": [[text(k), text(v)] for k, v in self.headers.items()], "body": "", "whole": False}
        with lock:
            seen.append(one)
        body, one["whole"] = self.body()
        one["body"] = base64.b64encode(body).decode()
        if one["whole"]:
            self.answer(b"ok" if self.command != "HEAD" else b"")

    def body(self):
        body = b""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                line = self.rfile.readline()
                if not line.endswith(b"\n"):
                    return body, False
                size = int(line.split(b";")[0], 16)
                if size == 0:
                    break
                part = self.rfile.read(size)
                body += part
                if len(part) < size or self.rfile.readline() != b"\r\n":
                    return body, False
            while True:
                line = self.rfile.readline()
                if line in (b"\r\n", b""):
                    return body, line != b""
        size = int(self.headers.get("content-length", 0))
        body = self.rfile.read(size)
        return body, len(body) == size

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.handle_any
        raise AttributeError(name)

    def log_message(self, *args):
        pass


server = Server(("127.0.0.1", 0), Function)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
