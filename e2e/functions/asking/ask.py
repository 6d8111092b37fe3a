# Asks a server once, by a driver that knows nothing of Headstart:
#   ask.py psycopg CONNECTION-STRING
#   ask.py redis-py URL
import sys

driver, target = sys.argv[1:]
if driver == "psycopg":
    import psycopg
    with psycopg.connect(target, autocommit=True) as c:
        print(*c.execute("select 1").fetchone())
else:
    import redis
    print(redis.Redis.from_url(target).get("client"))
