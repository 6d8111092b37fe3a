# A sample function as people write them: boto3, Python's http.server, and no word of Headstart. It reads the object that
# a request names, and may store it again under another key.
#
#   x-bucket, x-key   the object that is read
#   x-output          the key under which it is stored again; absent: not at all
#   x-output-bucket   the bucket of that; absent: x-bucket
#
# START_SECONDS is how long the program starts. The answer is JSON.
import hashlib
import http.server
import json
import os
import signal
import time

import boto3
from botocore.exceptions import BotoCoreError, ClientError

began = time.monotonic()
s3 = boto3.client("s3")
time.sleep(max(0.0, float(os.environ.get("START_SECONDS", "0")) - (time.monotonic() - began)))


class Function(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        try:
            status, said = 200, self.work()
        except (ClientError, BotoCoreError) as e:
            status, said = 502, {"error": str(e)}
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def work(self):
        bucket, output = self.headers["x-bucket"], self.headers["x-output"]
        began = time.monotonic()
        content = s3.get_object(Bucket=bucket, Key=self.headers["x-key"])["Body"].read()
        read = time.monotonic()
        if output:
            s3.put_object(Bucket=self.headers["x-output-bucket"] or bucket, Key=output, Body=content)
        return {
            "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content),
            "read_seconds": read - began, "write_seconds": time.monotonic() - read,
        }

    def log_message(self, *_):
        pass


# Of the first process of a container the kernel ignores signals that it has no handler for.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Function).serve_forever()
