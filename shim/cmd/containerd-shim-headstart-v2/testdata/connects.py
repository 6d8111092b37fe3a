"""Connects in several ways and says what it hears."""
import asyncio, json, os, select, signal, socket, subprocess, sys, threading

host, port = sys.argv[1], int(sys.argv[2])


def hear(s):
    s.sendall(b"?")
    said = b""
    while part := s.recv(100):
        said += part
    return said.decode()


def plain():
    with socket.socket() as s:
        s.connect((host, port))
        return hear(s)


def timeout():
    with socket.create_connection((host, port), timeout=10) as s:
        return hear(s) + (" blocking" if os.get_blocking(s.fileno()) else "")


def epoll():
    s, e = socket.socket(), select.epoll()
    s.setblocking(False)
    e.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    s.connect_ex((host, port))
    said = b""
    while True:
        events = e.poll(10)
        if not events or events[0][0] != s.fileno():
            return "no events: %s" % events
        if events[0][1] & select.EPOLLOUT and not said:
            s.send(b"?")
            e.modify(s, select.EPOLLIN)
        if events[0][1] & select.EPOLLIN:
            part = s.recv(100)
            if not part:
                return said.decode()
            said += part


def streams():
    async def run():
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"?")
        return (await reader.read(100)).decode()
    return asyncio.run(run())


def again():
    with socket.socket() as s:
        s.connect((host, port))
        try:
            s.connect((host, port))
        except OSError as e:
            return hear(s) + " " + type(e).__name__ + " %d" % e.errno
        return "connected twice"


def bound():
    with socket.socket() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        s.connect((host, port))
        options = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return hear(s) + " %s %s" % (options, os.get_inheritable(s.fileno()))


def duplicated():
    with socket.socket() as s, s.dup() as other:
        s.connect((host, port))
        return hear(other)


def peer():
    """What a connection is to is connected to, as for cancelling a query."""
    with socket.socket() as s:
        s.connect((host, port))
        to = s.getpeername()
    with socket.create_connection(to) as s:
        return hear(s) + " " + to[0]


def forked():
    r, w = os.pipe()
    if os.fork() == 0:
        os.write(w, plain().encode())
        os._exit(0)
    os.wait()
    return os.read(r, 100).decode()


def threaded():
    said = []
    threads = [threading.Thread(target=lambda: said.append(plain())) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return " ".join(sorted(set(said))) + " %d" % len(said)


def executed():
    code = "import socket; s = socket.create_connection((%r, %d)); s.sendall(b'?'); print(s.recv(100).decode(), end='')"
    return subprocess.run([sys.executable, "-c", code % (host, port)], capture_output=True, text=True).stdout


def datagrams():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((host, port))
        return "%s" % (s.getpeername(),)


def local():
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect("/none")
        except OSError as e:
            return type(e).__name__


def interrupted():
    """Signals restart the call, at each of its steps."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        return " ".join(sorted({plain() for _ in range(500)}))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def said(f):
    try:
        return f()
    except Exception as e:
        return repr(e)


print(json.dumps({f.__name__: said(f) for f in (
    plain, timeout, epoll, streams, again, bound, duplicated, peer, forked, threaded, executed, datagrams, local, interrupted)}), flush=True)
sys.stdin.read()
