"""chain (main.go) in Python, served by Headstart's helper."""
import json
import os
import time

import headstart_wsgi


def app(environ, start_response):
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    time.sleep(int(os.environ.get("WORK", "9ms").removesuffix("ms")) / 1000)
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"way": "x"}).encode()]


headstart_wsgi.serve(app)
