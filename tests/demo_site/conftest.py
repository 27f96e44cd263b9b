"""The demo's application without a network."""

import pytest
from demo_servers import TOKEN
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount

from optirs_web.demo_site.app import create_app
from optirs_web.demo_site.settings import Rate, Settings

UNLIMITED = Rate(per_second=1e9, burst=10**9)


@pytest.fixture
def make_client(tmp_path):
    """`make_client(max_runs=1)`: a client of an application with these settings, mounted at `prefix`."""
    apps = []
    static = tmp_path / "static"
    static.mkdir()
    (static / "style.css").write_text("p { color: red }\n" * 200)
    (static / "small.js").write_text("1")
    (static / ".hidden.js").write_text("secret")
    (static / "module.wasm").write_bytes(bytes(5000))
    (tmp_path / "secret.js").write_text("secret")
    (static / "link.js").symlink_to(tmp_path / "secret.js")

    def make(base_url="http://localhost", peer="127.0.0.1", prefix="", **options):
        made = {"rate": UNLIMITED, "write_rate": UNLIMITED, "static": static, "reference": tmp_path / "reference"}
        options = made | options
        app = create_app(Settings(data=tmp_path / "data", token=TOKEN, **options))
        apps.append(app)
        served = Starlette(routes=[Mount(prefix, app)]) if prefix else app
        headers = {"Accept-Encoding": "identity"}
        return TestClient(served, base_url + prefix, client=(peer, 50000), headers=headers)

    yield make
    for app in apps:
        app.state.store.close()
        app.state.compiler.close()


@pytest.fixture
def client(make_client):
    return make_client()
