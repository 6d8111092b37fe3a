# Runs one command by a driver that knows nothing of Headstart:
#   drivers.py DRIVER PATH
# PATH is the directory of a PostgreSQL server's socket, or a Redis server's socket. It prints what
# the server says about the session.
import asyncio, sys

driver, path = sys.argv[1:]
query = "select current_user || ' ' || current_database() || ' ' || current_setting('application_name')"
settings = dict(host=path, user="app", dbname="shop", application_name=driver)
if driver == "psycopg":
    import psycopg
    with psycopg.connect(**settings, autocommit=True) as c:
        print(*c.execute(query).fetchone())
elif driver == "psycopg2":
    import psycopg2
    with psycopg2.connect(**settings) as c, c.cursor() as k:
        k.execute(query)
        print(*k.fetchone())
elif driver == "asyncpg":
    import asyncpg
    async def main():
        c = await asyncpg.connect(host=path, user="app", database="shop", server_settings={"application_name": driver})
        print(await c.fetchval(query))
        await c.close()
    asyncio.run(main())
elif driver in ("redis-py", "redis-py-3"):
    import redis
    protocol = 3 if driver.endswith("3") else 2
    c = redis.Redis(unix_socket_path=path, protocol=protocol, db=2, client_name=driver, password="not the server's",
                    decode_responses=True)
    print(c.execute_command("ACL WHOAMI"), c.client_info()["db"], c.client_getname())
