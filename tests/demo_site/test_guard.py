"""The clients whose requests the demo accepts, and its limits of rates."""

import pytest
from demo_servers import TOKEN, error_code
from fastapi.testclient import TestClient

from optirs_web.demo_site.guard import Buckets
from optirs_web.demo_site.settings import Rate


@pytest.mark.parametrize(
    ("host", "options", "is_answered"),
    [
        ("localhost:8000", {}, True),
        ("LOCALHOST", {}, True),
        ("127.0.0.1", {}, True),
        ("[::1]:8000", {}, True),
        ("evil.example", {}, False),
        ("localhost.evil.example", {}, False),
        ("127.0.0.1.evil.example:8000", {}, False),
        ("192.0.2.7", {}, False),
        ("192.0.2.7", {"host": "0.0.0.0"}, True),
        ("[2001:db8::7]:8000", {"host": "::"}, True),
        ("evil.example", {"host": "0.0.0.0"}, False),
        ("box.example:8000", {"host": "box.example"}, True),
        ("demo.example:443", {"allowed_hosts": frozenset({"demo.example"})}, True),
        ("", {}, False),
        ("[::1", {}, False),
        ("[::1]evil.example", {}, False),
        ("[::1]:80:80", {}, False),
        ("localhost:evil.example", {}, False),
        ("[", {}, False),
    ],
)
def test_a_name_that_leads_here_from_elsewhere_is_not_answered(make_client, host, options, is_answered):
    response = make_client(**options).get("/site.json", headers={"Host": host})
    assert response.status_code == (200 if is_answered else 421)
    if not is_answered:
        assert error_code(response) == "unknown_host"


def test_a_client_that_asks_too_often_is_told_when_to_come_back(make_client):
    now = [0.0]
    client = make_client(rate=Rate(per_second=0.5, burst=3), write_rate=Rate(1, 1), clock=lambda: now[0])
    assert [client.get("/site.json").status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = client.get("/api/runs")
    assert (error_code(refused), refused.headers["retry-after"]) == ("too_many_requests", "2")
    now[0] = 2.0
    assert [client.get("/site.json").status_code for _ in range(2)] == [200, 429]


def test_writes_are_counted_apart(make_client):
    client = make_client(write_rate=Rate(per_second=1, burst=2), clock=lambda: 0.0)
    assert [client.delete("/api/runs/none").status_code for _ in range(3)] == [401, 401, 429]
    assert client.get("/api/runs").status_code == 200


def test_clients_are_counted_apart_and_the_oldest_forgotten():
    buckets = Buckets(Rate(per_second=1, burst=1), lambda: 0.0)
    assert [buckets.wait("a"), buckets.wait("a"), buckets.wait("b")] == [0.0, 1.0, 0.0]
    for number in range(5000):
        buckets.wait(f"client {number}")
    assert buckets.wait("a") == 0.0


@pytest.mark.parametrize(
    ("headers", "peer", "code"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, "127.0.0.1", None),
        ({"Sec-Fetch-Site": "same-origin"}, "::1", None),
        ({}, "127.0.0.1", "not_same_origin"),
        ({"Sec-Fetch-Site": "none"}, "127.0.0.1", "not_same_origin"),
        ({"Sec-Fetch-Site": "same-site"}, "127.0.0.1", "cross_site"),
        ({"Sec-Fetch-Site": "cross-site"}, "127.0.0.1", "cross_site"),
        ({"Sec-Fetch-Site": "same-origin"}, "192.0.2.7", "not_local"),
        ({"Sec-Fetch-Site": "same-origin", "X-Forwarded-For": "127.0.0.1"}, "192.0.2.7", "not_local"),
    ],
)
def test_only_the_server_s_own_pages_on_its_machine_get_the_token(make_client, headers, peer, code):
    response = make_client(peer=peer).get("/api/session", headers=headers)
    if code is None:
        assert response.json() == {"token": TOKEN}
    else:
        assert (response.status_code, error_code(response)) == (403, code)
        assert TOKEN not in response.text


@pytest.mark.parametrize("size", [0, 1 << 16, (1 << 16) + 1, 10 << 16])
def test_a_large_answer_is_sent_in_pieces_which_wait_for_the_client(make_client, tmp_path, size):
    app = make_client().app
    sizes = []

    async def measured(scope, receive, send):
        async def measure(message):
            sizes.append(len(message.get("body", b"")))
            await send(message)

        await app(scope, receive, measure)

    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    (tmp_path / "static" / "large.wasm").write_bytes(content)
    client = TestClient(measured, "http://localhost", headers={"Accept-Encoding": "identity"})
    assert client.get("/static/large.wasm").content == content
    assert (sum(sizes), max(sizes)) == (size, min(size, 1 << 16))
