// As drivers.py, with drivers of Node.
const [driver, path] = process.argv.slice(2);
if (driver === "node-pg") {
  const { default: pg } = await import("pg");
  const c = new pg.Client({ host: path, user: "app", database: "shop", application_name: driver });
  await c.connect();
  const r = await c.query("select current_user || ' ' || current_database() || ' ' || current_setting('application_name') s");
  console.log(r.rows[0].s);
  await c.end();
} else {
  const { default: Redis } = await import("ioredis");
  const c = new Redis({ path, db: 2, connectionName: driver });
  const info = await c.client("INFO");
  console.log(await c.acl("WHOAMI"), info.match(/ db=(\d+)/)[1], await c.client("GETNAME"));
  c.disconnect();
}
