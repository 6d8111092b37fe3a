"""Sends S3 requests with boto3. Reads one request a line as JSON and prints its answer (driver.go)."""

import collections
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
import urllib.error
import urllib.request

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

bucket = os.environ["BUCKET"]
s3 = boto3.client("s3")


def sha(data):
    return hashlib.sha256(data).hexdigest()


def answer(out):
    reply = {"status": out.pop("ResponseMetadata")["HTTPStatusCode"]}
    if "Body" in out:
        reply["sha256"] = sha(out.pop("Body").read())
    return reply | {"out": out}


def call(client, op, params, body):
    if body:
        params["Body"] = open(body, "rb")
    return answer(getattr(client, xform_name(op))(**params))


def unsigned(op, params, body):
    config = Config(s3={"payload_signing_enabled": False}, request_checksum_calculation="when_required")
    return call(boto3.client("s3", config=config), op, params, body)


def upload(params, body):
    bucket, key = params.pop("Bucket"), params.pop("Key")
    s3.upload_file(body, bucket, key, ExtraArgs=params)


def upload_stream(params, body):
    bucket, key = params.pop("Bucket"), params.pop("Key")
    with subprocess.Popen(["cat", body], stdout=subprocess.PIPE) as cat:  # a pipe cannot seek
        s3.upload_fileobj(cat.stdout, bucket, key, ExtraArgs=params)


def download(params, _):
    with tempfile.NamedTemporaryFile() as file:
        s3.download_file(params["Bucket"], params["Key"], file.name)
        return {"sha256": sha(open(file.name, "rb").read())}


def presign(params, _):
    signer = boto3.client("s3", config=Config(signature_version="s3v4"))  # else it signs URLs as S3 once did
    return {"out": {"URL": signer.generate_presigned_url(xform_name(params.pop("Op")), Params=params)}}


def plain_http(params, body):
    data = body and open(body, "rb").read()
    request = urllib.request.Request(params["URL"], data, params.get("Headers") or {}, method=params["Method"])
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as e:
        response = e
    data = response.read()
    reply = {"status": response.status, "out": {k.lower(): v for k, v in response.headers.items()}}
    return reply | ({"text": data.decode()} if response.status >= 400 else {"sha256": sha(data)})


def get_many(params, _):
    count = params.pop("Count")
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        got = pool.map(lambda _: sha(s3.get_object(**params)["Body"].read()), range(count))
        return {"out": {"Counts": collections.Counter(got)}}


def get_some(params, _):
    count = params.pop("Count")
    body = s3.get_object(**params)["Body"]
    data = body.read(count)
    body.close()
    return {"sha256": sha(data)}


special = {"Upload": upload, "UploadStream": upload_stream, "Download": download, "Presign": presign,
           "HTTP": plain_http, "GetMany": get_many, "GetSome": get_some}

for line in sys.stdin:
    request = json.loads(line)
    op, params, body = request["op"], {"Bucket": bucket} | request["in"], request.get("body")
    try:
        if op in special:
            reply = special[op](params, body) or {}
        elif request.get("unsigned"):
            reply = unsigned(op, params, body)
        else:
            reply = call(s3, op, params, body)
    except ClientError as e:
        reply = {"status": e.response["ResponseMetadata"]["HTTPStatusCode"], "code": e.response["Error"]["Code"]}
    except Exception:
        reply = {"fault": traceback.format_exc()}
    print(json.dumps(reply, default=str), flush=True)
