// Sends S3 requests with the AWS SDK for JavaScript v3. Reads one request a line as JSON and prints its answer
// (driver.go).
import { createHash } from "node:crypto";
import { createReadStream, readFileSync, statSync } from "node:fs";
import { createInterface } from "node:readline";
import * as sdk from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const s3 = new sdk.S3Client({});
const sha = (data) => createHash("sha256").update(data).digest("hex");
const command = (op, params) => new sdk[op + "Command"](params);
const get = async (params) => (await s3.send(command("GetObject", params))).Body.transformToByteArray();

async function call(op, params, body, client = s3) {
  for (const key of Object.keys(params)) if (key.endsWith("Since")) params[key] = new Date(params[key]);
  if (body) params.Body = readFileSync(body);
  const { $metadata, Body, ...out } = await client.send(command(op, params));
  const reply = { status: $metadata.httpStatusCode, out };
  if (Body) reply.sha256 = sha(await Body.transformToByteArray());
  return reply;
}

function unsigned(op, params, body) {
  const client = new sdk.S3Client({ requestChecksumCalculation: "WHEN_REQUIRED" });
  const skip = (next) => (args) => {
    args.request.headers["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD";
    return next(args);
  };
  client.middlewareStack.add(skip, { step: "build" });
  return call(op, params, body, client);
}

const special = {
  // lib-storage uploads in parts what is larger than 5 MiB.
  Upload: async (params, body) => void (await upload({ ...params, Body: readFileSync(body) })),
  UploadStream: async (params, body) => void (await upload({ ...params, Body: createReadStream(body) })),
  async PutStream(params, body) {
    const stream = { Body: createReadStream(body), ContentLength: statSync(body).size };
    await s3.send(command("PutObject", { ...params, ...stream }));
  },
  // The SDK has no manager for downloads: this is what programs write themselves.
  async Download(params) {
    const { ContentLength: size } = await s3.send(command("HeadObject", params));
    const step = 5 << 20;
    const parts = Array.from({ length: Math.ceil(size / step) }, (_, i) =>
      get({ ...params, Range: `bytes=${i * step}-${Math.min(size, (i + 1) * step) - 1}` }));
    return { sha256: sha(Buffer.concat(await Promise.all(parts))) };
  },
  async Presign({ Op, ...params }) {
    return { out: { URL: await getSignedUrl(s3, command(Op, params), { expiresIn: 600 }) } };
  },
  async HTTP({ URL, Method, Headers }, body) {
    const response = await fetch(URL, { method: Method, headers: Headers ?? {}, body: body && readFileSync(body) });
    const data = Buffer.from(await response.arrayBuffer());
    const reply = { status: response.status, out: Object.fromEntries(response.headers) };
    return response.status >= 400 ? { ...reply, text: data.toString() } : { ...reply, sha256: sha(data) };
  },
  async GetMany({ Count, ...params }) {
    const Counts = {};
    const bodies = await Promise.all(Array.from({ length: Count }, () => get(params)));
    for (const digest of bodies.map(sha)) Counts[digest] = (Counts[digest] ?? 0) + 1;
    return { out: { Counts } };
  },
  async GetSome({ Count, ...params }) {
    const { Body } = await s3.send(command("GetObject", params));
    let data = Buffer.alloc(0);
    for await (const chunk of Body) {
      data = Buffer.concat([data, chunk]);
      if (data.length >= Count) break; // which closes the stream
    }
    return { sha256: sha(data.subarray(0, Count)) };
  },
};

const upload = (params) => new Upload({ client: s3, params }).done();

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const params = { Bucket: process.env.BUCKET, ...request.in };
  let reply;
  try {
    if (special[request.op]) reply = (await special[request.op](params, request.body)) ?? {};
    else if (request.unsigned) reply = await unsigned(request.op, params, request.body);
    else reply = await call(request.op, params, request.body);
  } catch (e) {
    if (e.$response) reply = { status: e.$metadata.httpStatusCode, code: e.name };
    else reply = { fault: e.stack ?? String(e) };
  }
  console.log(JSON.stringify(reply));
}
