# Asks PostgreSQL and Redis as ../main.go does, by psycopg and redis-py as they are, and does what few programs do:
#   query.py pg STATEMENT | redis WORD... | serve | descriptors | sockets | alive [DESCRIPTOR]
import errno, os, socket, struct, sys

what, *rest = sys.argv[1:]


def server():
    return os.environ["PGHOST"], int(os.environ["PGPORT"])


def alive(s):
    # SSLRequest: each server of PostgreSQL answers with one byte.
    s.sendall(struct.pack("!ii", 8, 80877103))
    return s.recv(1) in (b"S", b"N")


if what == "pg":
    import psycopg
    with psycopg.connect("", autocommit=True) as c:
        print(*c.execute(rest[0]).fetchone())
elif what == "redis":
    import redis
    print(redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True).execute_command(*rest))
elif what == "serve":
    # A function: what is asked for is in the parameter q, and all requests share redis-py's pool.
    import http.server, json, redis, urllib.parse
    pool = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            words = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["q"][0].split()
            try:
                answer = {"said": str(pool.execute_command(*words)), "error": ""}
            except redis.RedisError as e:
                answer = {"said": "", "error": str(e)}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

    http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
elif what == "descriptors":
    # All that the program has at its start: what is listed and gone is the list's own.
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            print(fd, os.readlink(f"/proc/self/fd/{fd}").split(":")[0])
        except FileNotFoundError:
            pass
elif what == "alive":
    print(alive(socket.socket(fileno=int(rest[0])) if rest else socket.create_connection(server())))
elif what == "sockets":
    twice = socket.create_connection(server())
    print("again", errno.errorcode.get(twice.connect_ex(server())), alive(twice))
    # A connection goes on in a child, and a child has its own.
    shared = socket.create_connection(server())
    child = os.fork()
    if child == 0:
        os._exit(0 if alive(shared) and alive(socket.create_connection(server())) else 1)
    print("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    # So it does in another program, which has its own, too.
    passed = socket.create_connection(server())
    passed.set_inheritable(True)
    for args in ([str(passed.fileno())], []):
        print("exec", flush=True)
        os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, "alive", *args])
