// As ask.py: ask.mjs HOST PORT USER DATABASE [PASSWORD]. With a password it verifies the server.
import { readFileSync } from "node:fs";
import pg from "pg";
const [host, port, user, database, password] = process.argv.slice(2);
const ssl = password ? { ca: readFileSync("/roots.pem") } : false;
const c = new pg.Client({ host, port: Number(port), user, database, password, ssl });
await c.connect();
console.log((await c.query("select 1 as one")).rows[0].one);
await c.end();
