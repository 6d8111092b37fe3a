"""Serves a WSGI application (PEP 3333) that may work on requests before their turn: each request has a process and a
TMPDIR of its own, which end with it. When nobody wants the answer any more, the client has closed its half of the
connection: then the process is killed, with those that it has started, and the instance is free for the next request.
For Linux and Python 3.9 or later; modules that the application has loaded are there in each process."""
import io
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from wsgiref.handlers import SimpleHandler
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler

UNWANTED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
DIED = UNWANTED.replace(b"503 Service Unavailable", b"500 Internal Server Error")
CHUNK = 64 << 10  # how much of an answer is passed on at a time, in bytes


def serve(app, port=None):
    """Serves app on a port, which PORT says by default. It returns when the process gets SIGTERM."""
    listener = socket.create_server(("", int(port or os.environ["PORT"])), backlog=128)
    wakes, wakens = os.pipe()
    os.set_blocking(wakens, False)
    signal.set_wakeup_fd(wakens)
    signal.signal(signal.SIGTERM, lambda *_: None)
    poll, at_work = select.epoll(), {}
    poll.register(listener, select.EPOLLIN)
    poll.register(wakes, select.EPOLLIN)
    while True:
        # New ones last: they may get the descriptors of those that end.
        for fd, _ in sorted(poll.poll(), key=lambda event: event[0] == listener.fileno()):
            if fd == wakes:
                for work in set(at_work.values()):
                    work.end()
                listener.close()
                return
            if fd == listener.fileno():
                work = _Work(listener, app)
                for each, what in ((work.answer, select.EPOLLIN), (work.conn.fileno(), select.EPOLLRDHUP)):
                    poll.register(each, what)
                    at_work[each] = work
            elif fd in at_work and not at_work[fd].goes_on(fd):
                work = at_work[fd]
                for each in (work.answer, work.conn.fileno()):
                    poll.unregister(each)
                    del at_work[each]
                work.end()


def _directory():
    """A directory for one request; None: there is nowhere to write."""
    for parent in (None, "/dev/shm"):
        try:
            return tempfile.mkdtemp(prefix="request-", dir=parent)
        except OSError:
            pass
    return None


class _Work:
    """A request with its process, whose answer passes this one."""

    def __init__(self, listener, app):
        self.conn, client = listener.accept()
        self.tmp = _directory()
        self.answer, answers = os.pipe()
        self.said, self.otherwise = False, UNWANTED
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                if self.tmp:
                    os.environ["TMPDIR"] = tempfile.tempdir = self.tmp
                with os.fdopen(answers, "wb") as out:
                    _Request(self.conn, client, out, app)
                code = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        os.close(answers)

    def goes_on(self, fd):
        """Passes on what there is of the answer. False: it is over, or nobody wants it."""
        if fd == self.answer:
            part = os.read(fd, CHUNK)
            try:
                self.conn.sendall(part)
                self.said, self.otherwise = self.said or len(part) > 0, DIED
                return len(part) > 0
            except OSError:
                return False
        return False

    def end(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or has not come to have a group
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        if self.tmp:
            shutil.rmtree(self.tmp, ignore_errors=True)
        os.close(self.answer)
        with self.conn:
            if not self.said:
                try:
                    self.conn.sendall(self.otherwise)
                except OSError:
                    pass


class _Request(WSGIRequestHandler):
    """One request, in its process."""

    def __init__(self, conn, client, out, app):
        self.out, self.app = out, app
        self.server = type("Server", (), {"base_environ": {"SERVER_NAME": "", "SERVER_PORT": os.environ.get("PORT", ""), "SCRIPT_NAME": ""}})
        super().__init__(conn, client, self.server)

    def setup(self):
        super().setup()
        self.wfile = self.out

    def handle(self):
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536 or not self.parse_request():
            return
        handler = ServerHandler(self.rfile, self.wfile, sys.stderr, self.get_environ(), multithread=False, multiprocess=True)
        handler.request_handler = self
        handler.run(self.app)

    def log_request(self, *_):
        pass
