"""A demo server in a process of its own, checkpoints to send, and clients that speak HTTP as badly as they like."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import numpy as np

import optirs_web as ow

__all__ = [
    "BINARY",
    "TOKEN",
    "WRITES",
    "checkpoint",
    "connect",
    "error_code",
    "files_of",
    "is_closed",
    "put_head",
    "read_response",
    "running_server",
    "send_raw",
    "upload",
]

TOKEN = "a-token-for-tests"
BINARY = "application/octet-stream"
WRITES = {"Authorization": f"Bearer {TOKEN}", "Content-Type": BINARY}

_PROGRAM = """
import json, sys
from contextlib import closing
from pathlib import Path
from starlette.applications import Starlette
from starlette.routing import Mount
from optirs_web.demo_site.app import create_app
from optirs_web.demo_site.server import bind, serve, url_of
from optirs_web.demo_site.settings import Rate, Settings

data, prefix, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
settings = Settings(data=data, write_rate=Rate(1e6, 10**6), rate=Rate(1e6, 10**6), **options)
app = create_app(settings)
listener = bind("127.0.0.1", 0)
print(url_of(listener) + prefix, flush=True)
with closing(app.state.store):
    serve(Starlette(routes=[Mount(prefix, app)]) if prefix else app, settings, listener)
"""


def checkpoint(value=1.0, size=8, **extra):
    """The bytes of a checkpoint with this value in it, of an AdamW that has made one step."""
    weight = ow.Parameter(np.full(size, value, "float32"), device="cpu")
    optimizer = ow.optim.AdamW([weight], lr=0.0)
    optimizer.step(grads=[np.ones(size, "float32")])
    return ow.dump_checkpoint({"weight": weight}, optimizer, extra)


def upload(client, name="run", content=None, **headers):
    """The answer to an upload through a test client."""
    content = checkpoint() if content is None else content
    return client.put(f"/api/runs/{name}/checkpoint", content=content, headers={**WRITES, **headers})


def error_code(response):
    """The code of an error, whose form is checked."""
    (body,) = response.json().values()
    assert set(body) == {"code", "message"}
    assert body["message"].strip()
    return body["code"]


def files_of(folder):
    """Return the names of a server's files, without the index."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("index.sqlite3"))


@contextlib.contextmanager
def running_server(data, prefix="", **options):
    """The process and the address of a server, with the site under a prefix; it is killed in the end."""
    command = [sys.executable, "-c", _PROGRAM, str(data), prefix, json.dumps({"token": TOKEN, **options})]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://"), "the server did not start"
            yield process, url
        finally:
            process.kill()


def put_head(name, **headers):
    """The first lines of an upload; the body is up to the caller."""
    fields = {
        "Host": "localhost",
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/octet-stream",
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    lines = [f"PUT /api/runs/{name}/checkpoint HTTP/1.1", *(f"{key}: {value}" for key, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def connect(url):
    """A connection to the server."""
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def is_closed(connection):
    """Return True if the server ends a connection within ten seconds; what it sends before does not matter."""
    connection.settimeout(10)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def send_raw(url, raw):
    """Send bytes, and return the status, headers and body of the server's response."""
    with connect(url) as connection:
        connection.sendall(raw)
        return read_response(connection)


def read_response(connection):
    """Status, headers and body of the answer."""
    with connection.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        headers = {}
        while line := stream.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, stream.read(int(headers.get("content-length", 0)))
