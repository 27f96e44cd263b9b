"""The server against clients that disconnect, stall, send wrong lengths or too many requests, and against crashes."""

import json
import resource
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from demo_servers import (
    TOKEN,
    checkpoint,
    connect,
    files_of,
    is_closed,
    put_head,
    read_response,
    running_server,
    send_raw,
)
from requirements import missing

LARGE = 200_000  # values: large enough that a checkpoint arrives in many pieces
LIMIT = 4 << 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The folder and the address of a server for tests that tidy up, or that leave nothing."""
    data = tmp_path_factory.mktemp("server") / "data"
    with running_server(data, max_checkpoint=LIMIT) as (_, url):
        yield data, url


@pytest.fixture
def data(tmp_path):
    """The folder of a server of the test's own."""
    return tmp_path / "data"


def put(url, content, name="run"):
    """The status of an upload."""
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/octet-stream"}
        connection.request("PUT", f"/api/runs/{name}/checkpoint", content, headers)
        return connection.getresponse().status


def get(url, name="run"):
    with urlopen(f"{url}/api/runs/{name}/checkpoint", timeout=60) as response:
        return response.read()


def eventually(is_so):
    """Wait for what the server does after its client is gone."""
    give_up = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def receives(data):
    """Return True if the server has begun to write an upload."""
    return any(name.endswith(".part") for name in files_of(data))


@pytest.mark.parametrize("name", ["run", "other"])
def test_a_client_that_vanishes_in_mid_upload_leaves_nothing(shared, name):
    data, url = shared
    content = checkpoint(1, size=LARGE)
    put(url, checkpoint(7))
    kept = files_of(data)
    with connect(url) as connection:
        connection.sendall(put_head(name, Content_Length=len(content)) + content[:-1])
        eventually(lambda: receives(data))
    eventually(lambda: files_of(data) == kept)
    assert get(url) == checkpoint(7)
    assert send_raw(url, b"GET /api/runs/other HTTP/1.1\r\nHost: localhost\r\n\r\n")[0] == 404


def test_a_client_that_stalls_is_given_up(data):
    with running_server(data, body_patience=0.2) as (_, url), connect(url) as connection:
        connection.sendall(put_head("run", Content_Length=1000) + b"x" * 999)
        status, headers, body = read_response(connection)
        assert (status, json.loads(body)["error"]["code"]) == (408, "too_slow")
        assert headers["connection"] == "close"
        assert files_of(data) == []


POST_RESULT = (
    "POST /api/bench HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Authorization: Bearer {TOKEN}\r\n"
)
WITHOUT_TOKEN = POST_RESULT.replace(TOKEN, "wrong")
GET = b"GET /site.json HTTP/1.1\r\nHost: localhost\r\n"


def trickle(connection):
    """Send byte after byte for ten seconds, as if more were to come."""
    for _ in range(200):
        connection.sendall(b"X")
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("head", [POST_RESULT.encode(), put_head("run")[:-2]])
def test_a_body_that_stops_or_trickles_is_not_waited_for(data, head):
    with running_server(data, body_patience=0.5, least_body_rate=10_000) as (_, url):
        with connect(url) as stops, connect(url) as trickles:
            stops.sendall(head + b"Content-Length: 1000\r\n\r\n")
            status, headers, body = read_response(stops)
            assert (status, json.loads(body)["error"]["code"]) == (408, "too_slow")
            assert headers["connection"] == "close"
            trickles.sendall(head + b"Content-Length: 1000\r\n\r\n")
            with pytest.raises(ConnectionError):
                trickle(trickles)
        assert files_of(data) == []


@pytest.mark.parametrize("head", [WITHOUT_TOKEN.encode(), put_head("run", Authorization="Bearer wrong")[:-2]])
def test_without_the_token_no_body_is_waited_for(shared, head):
    with connect(shared[1]) as connection:
        connection.sendall(head + b"Content-Length: 1000\r\n\r\n")
        assert read_response(connection)[0] == 401


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([], id="nothing"),
        pytest.param([b"GET / HTTP/1.1\r\n", b"Host: localhost\r\n"], id="half a head"),
        pytest.param([b"GET /site.json HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET"], id="half of a second head"),
        pytest.param([GET + b"Content-Length: 1000000\r\n\r\n"], id="a body that nobody reads"),
        pytest.param([GET + b"Transfer-Encoding: chunked\r\n\r\n", b"5;" + b"x" * 100], id="a chunk without an end"),
    ],
)
def test_a_client_that_asks_nothing_is_hung_up_on(data, sent):
    with running_server(data, head_patience=0.5) as (_, url), connect(url) as connection:
        for piece in sent:
            connection.sendall(piece)
            time.sleep(0.05)
        with pytest.raises(ConnectionError):
            trickle(connection)


@pytest.mark.parametrize(
    "address",
    [
        *(pytest.param(address, marks=pytest.mark.slow) for address in ("/static/home.js", "/programs/gpt.py")),
        "/api/runs/large/checkpoint",
    ],
)
def test_a_client_that_reads_nothing_is_hung_up_on(data, address):
    with running_server(data, read_patience=0.5, head_patience=60) as (_, url):
        put(url, checkpoint(size=LARGE), "large")
        with connect(url) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            request = f"GET {address} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            with suppress(ConnectionError):
                for _ in range(400):  # one after the other, without a look at the answers
                    connection.sendall(request)
                    time.sleep(0.01)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # what was sent before arrives at once
            assert is_closed(connection)
        assert get(url, "large")


def test_idle_connections_make_room_for_who_asks(data):
    with running_server(data, max_connections=20, max_client_connections=20) as (_, url), ExitStack() as stack:
        held = [stack.enter_context(connect(url)) for _ in range(60)]
        assert send_raw(url, GET + b"\r\n")[0] == 200
        held[-1].sendall(GET + b"\r\n")
        assert read_response(held[-1])[0] == 200
        assert all(is_closed(connection) for connection in held[:40])


def test_a_client_beyond_its_connections_is_told_to_come_back(data):
    with running_server(data, max_client_connections=4) as (_, url), ExitStack() as stack:
        busy = [stack.enter_context(connect(url)) for _ in range(4)]
        for connection in busy:
            connection.sendall(put_head("run", Content_Length=1000))
        eventually(lambda: sum(name.endswith(".part") for name in files_of(data)) == 4)
        status, headers, _ = send_raw(url, b"")
        assert (status, headers["connection"]) == (503, "close")
        busy.pop().close()
        eventually(lambda: sum(name.endswith(".part") for name in files_of(data)) == 3)
        assert send_raw(url, GET + b"\r\n")[0] == 200


def test_a_body_of_unknown_length_is_stopped_at_the_limit(shared):
    data, url = shared
    kept = files_of(data)
    piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with connect(url) as connection:
        connection.sendall(put_head("run", Transfer_Encoding="chunked") + LIMIT // 65_536 * piece)
        eventually(lambda: receives(data))
        connection.sendall(piece)  # it never says that the body ends
        status, _, body = read_response(connection)
    assert (status, json.loads(body)["error"]["code"]) == (413, "too_large")
    assert files_of(data) == kept


def test_a_declared_length_over_the_limit_is_refused_before_the_body_comes(shared):
    with connect(shared[1]) as connection:
        connection.sendall(put_head("run", Content_Length=10**15))
        assert read_response(connection)[0] == 413


def test_uploads_beyond_the_places_for_them_are_told_to_come_back(data):
    content = checkpoint()
    with running_server(data, max_uploads=1) as (_, url), connect(url) as slow:
        slow.sendall(put_head("slow", Content_Length=len(content)))
        eventually(lambda: receives(data))
        status, headers, _ = send_raw(url, put_head("run", Content_Length=len(content)) + content)
        assert (status, headers["retry-after"]) == (429, "2")
        slow.sendall(content)
        assert read_response(slow)[0] == 201
        assert put(url, content) == 201


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
        put_head("run", Content_Length="-1"),
        put_head("run", Content_Length="1, 2"),
        put_head("run", Content_Length="1", Transfer_Encoding="chunked") + b"zz\r\n",
    ],
)
def test_what_is_no_http_does_no_harm(shared, raw):
    _, url = shared
    with connect(url) as connection:
        try:
            connection.sendall(raw)
            answer = connection.recv(1 << 16)
        except ConnectionError:  # it hangs up on who sends on
            answer = b""
    assert answer[9:10] in (b"", b"4")
    assert put(url, checkpoint()) in (200, 201)


@pytest.mark.parametrize(
    "target",
    ["/static/../app.py", "/static/../../pyproject.toml", "/static//etc/passwd", "/static/..%2fapp.py",
     "/static/%2e%2e%2fapp.py", "/static/..\\app.py", "/programs/../app.py", "/programs/..%00/app.py",
     "/pyodide/../../package.json", "/../etc/passwd", "//etc/passwd", "/static/./../app.py",
     "http://localhost/static/../app.py"],
)  # fmt: skip
def test_no_target_leads_out_of_its_folder(shared, target):
    status, headers, body = send_raw(shared[1], f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert (status, headers["content-type"]) == (404, "application/json"), body
    assert json.loads(body)["error"]["code"] == "not_found"


def test_uploads_to_one_name_at_once_leave_one_of_them(shared):
    data, url = shared
    contents = [checkpoint(value, size=LARGE) for value in range(4)]
    others = len(files_of(data))
    statuses = [put(url, contents[0], "crowd")]
    threads = [
        threading.Thread(target=lambda one=content: statuses.extend(put(url, one, "crowd") for _ in range(3)))
        for content in contents
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert get(url, "crowd") in contents
    assert statuses == [201] + [200] * 12
    assert get(url, "crowd") in contents
    assert len(files_of(data)) == others + 1


@pytest.mark.slow
def test_a_killed_server_leaves_the_old_checkpoint_or_the_new_one(data):
    contents = [checkpoint(value, size=LARGE) for value in range(2)]

    def upload_until_it_dies(url):
        try:
            for number in range(10_000):
                put(url, contents[number % 2])
        except OSError:
            pass

    with running_server(data) as (_, url):
        assert put(url, contents[0]) == 201
    for moment in range(4):
        with running_server(data) as (process, url):
            assert get(url) in contents
            assert len(files_of(data)) == 1  # what was half written is gone
            uploads = threading.Thread(target=upload_until_it_dies, args=(url,))
            uploads.start()
            eventually(lambda: receives(data))
            time.sleep(0.005 * moment)  # somewhere else each time: while it is received, checked or named
            process.kill()
            process.wait()
            uploads.join()


@pytest.mark.slow
def test_a_full_disk_is_said_to_be_one_and_the_old_checkpoint_stays(data):
    if not hasattr(resource, "prlimit"):
        missing("linux", "the files of another process cannot be limited here")
    with running_server(data) as (process, url):
        put(url, checkpoint(7))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        assert put(url, checkpoint(1, size=LARGE)) == 507
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 1 << 20))
        assert put(url, checkpoint(2)) == 507
        request = POST_RESULT.encode() + b"Content-Length: 2\r\n\r\n{}"
        assert send_raw(url, request)[0] == 507
        assert send_raw(url, put_head("run").replace(b"PUT", b"DELETE").replace(b"/checkpoint", b""))[0] == 507
        assert get(url) == checkpoint(7)
        assert len(files_of(data)) == 1
