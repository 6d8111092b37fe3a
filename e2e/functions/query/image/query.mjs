// Asks PostgreSQL and Redis as ../main.go does, by pg and ioredis as they are: query.mjs pg STATEMENT | redis WORD...
const [what, ...rest] = process.argv.slice(2);
if (what === "pg") {
  const { default: pg } = await import("pg");
  const c = new pg.Client();
  await c.connect();
  console.log(Object.values((await c.query(rest[0])).rows[0])[0]);
  await c.end();
} else {
  const { default: Redis } = await import("ioredis");
  const c = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: 0 });
  c.on("error", (e) => { console.log("error:", e.message); process.exit(1); });
  console.log(await c.call(...rest));
  c.disconnect();
}
