"""The demo's API: checkpoints, benchmark results, shaders."""

import json
import sqlite3
import time
from contextlib import closing

import pytest
from demo_servers import BINARY, TOKEN, WRITES, checkpoint, error_code, files_of, upload

import optirs_web as ow
from optirs_web import wgsl
from optirs_web.demo_site.store import Store, StoreError
from optirs_web.interop import safetensors


def test_a_checkpoint_comes_back_as_it_was_sent(client):
    content = checkpoint(step=12, epoch=3)
    assert upload(client, content=content).status_code == 201
    response = client.get("/api/runs/run/checkpoint")
    assert (response.content, response.headers["content-type"]) == (content, BINARY)
    info = client.get("/api/runs/run").json()
    assert (info["name"], info["size"], info["step"], info["epoch"]) == ("run", len(content), 12, 3)
    assert info["optimizer"] == "AdamW"
    assert response.headers["etag"] == f'"{info["sha256"]}"'
    known = client.get("/api/runs/run/checkpoint", headers={"If-None-Match": response.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_a_run_is_replaced_and_deleted_with_its_file(client, tmp_path):
    first = upload(client, content=checkpoint(1)).json()
    replaced = upload(client, content=checkpoint(2))
    assert replaced.status_code == 200
    assert replaced.json()["created"] == first["created"]
    assert client.get("/api/runs/run/checkpoint").content == checkpoint(2)
    assert len(files_of(tmp_path / "data")) == 1
    assert client.delete("/api/runs/run", headers=WRITES).status_code == 204
    assert client.get("/api/runs").json() == []
    assert error_code(client.get("/api/runs/run/checkpoint")) == "no_such_run"
    assert files_of(tmp_path / "data") == []


@pytest.mark.parametrize("kind", ["", "x" * 100, "\ud800", "a b", "é", 5, ["Adam"], {"a": 1}, None])
def test_an_optimizer_of_no_such_name_is_null(client, kind):
    notes = {"extra": {}, "optimizer": {"type": kind, "param_groups": []}}
    metadata = {"format": "optirs-web 1", "optirs_web": json.dumps(notes)}
    response = upload(client, content=b"".join(safetensors.parts({}, metadata)))
    assert (response.status_code, response.json()["optimizer"]) == (201, None)


def test_a_message_that_quotes_the_client_is_short_and_fit_to_send(client):
    header = json.dumps({"w": {"dtype": "\ud800" * 10_000, "shape": [], "data_offsets": [0, 0]}}).encode()
    response = upload(client, content=len(header).to_bytes(8, "little") + header)
    assert error_code(response) == "not_a_checkpoint"
    assert len(response.content) < 10_000


def test_the_epoch_of_a_digits_run_is_the_length_of_its_history(client):
    assert upload(client, content=checkpoint(history=[[1, 0.5], [2, 0.25]])).json()["epoch"] == 2


def test_what_a_checkpoint_does_not_say_is_null(client):
    weight = ow.Parameter([1.0], device="cpu")
    content = ow.dump_checkpoint({"w": weight}, extra={"step": "many", "epoch": True})
    info = upload(client, content=content).json()
    assert (info["step"], info["epoch"], info["optimizer"]) == (None, None, None)


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (None, {"Authorization": ""}, 401, "unauthorized"),
        (None, {"Authorization": "Bearer wrong"}, 401, "unauthorized"),
        (None, {"Authorization": f"Bearer {TOKEN}é".encode()}, 401, "unauthorized"),
        (None, {"Authorization": f"Basic {TOKEN}"}, 401, "unauthorized"),
        (None, {"Content-Type": "application/json"}, 415, "not_binary"),
        (None, {"Content-Encoding": "gzip"}, 415, "not_binary"),
        (b"", {}, 422, "not_a_checkpoint"),
        (b"x" * 100, {}, 422, "not_a_checkpoint"),
        (checkpoint()[:-1], {}, 422, "not_a_checkpoint"),
        (checkpoint() + b"x", {}, 422, "not_a_checkpoint"),
        (
            checkpoint()[:-4] + b"\x00\x00\x80\x7f",
            {},
            422,
            "not_a_checkpoint",
        ),  # a number that the digest does not know
        ((2).to_bytes(8, "little") + b"{}", {}, 422, "not_a_checkpoint"),
        ((60_000).to_bytes(8, "little") + b"[" * 60_000, {}, 422, "not_a_checkpoint"),
        (bytes(100_001), {}, 413, "too_large"),
    ],
)
def test_a_refused_checkpoint_leaves_the_old_one_and_nothing_else(
    make_client, tmp_path, content, headers, status, code
):
    client = make_client(max_checkpoint=100_000)
    upload(client, content=checkpoint(7))
    response = upload(client, content=content, **headers)
    assert (response.status_code, error_code(response)) == (status, code)
    assert client.get("/api/runs/run/checkpoint").content == checkpoint(7)
    assert len(files_of(tmp_path / "data")) == 1


def test_a_header_that_would_fill_the_memory_is_not_read(client):
    length = 5 << 20
    response = upload(client, content=length.to_bytes(8, "little") + b" " * (length + 1))
    assert error_code(response) == "not_a_checkpoint"
    assert "header" in response.json()["error"]["message"]


def test_a_header_of_long_numbers_takes_no_time(client):
    sizes = ",".join(["9" * 4000] * 400)
    header = f'{{"x":{{"dtype":"F32","shape":[{sizes}],"data_offsets":[0,4]}}}}'.encode()
    begin = time.process_time()
    response = upload(client, content=len(header).to_bytes(8, "little") + header + bytes(4))
    assert time.process_time() - begin < 1
    assert error_code(response) == "not_a_checkpoint"
    assert len(response.json()["error"]["message"]) < 300


def test_a_checkpoint_whose_numbers_were_overwritten_is_refused(client):
    content = bytearray(checkpoint())
    content[-1] ^= 1
    response = upload(client, content=bytes(content))
    assert error_code(response) == "not_a_checkpoint"
    assert "does not match the SHA-256" in response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["-x", ".x", "_x", "a" * 65, "a b", "é", "a%0A", "a%00", "%2e%2e", "a:b", "a\\b"])
def test_a_run_has_a_plain_name(client, name):
    response = upload(client, name)
    assert (response.status_code, error_code(response)) == (422, "invalid_request")


def test_quotas_hold_for_runs_and_bytes_but_not_for_replacing(make_client):
    size = len(checkpoint())
    client = make_client(max_runs=2, max_total=2 * size)
    upload(client, "a"), upload(client, "b")
    response = upload(client, "c")
    assert (response.status_code, error_code(response)) == (409, "quota_exceeded")
    assert upload(client, "a").status_code == 200
    assert upload(client, "b", checkpoint(size=9)).status_code == 409
    client.delete("/api/runs/a", headers=WRITES)
    assert upload(client, "c").status_code == 201


def test_another_server_cannot_use_the_folder(make_client, tmp_path):
    make_client().app.state.store.close()
    make_client()  # with an index that is there already
    with pytest.raises(StoreError, match="choose another folder"):
        Store(tmp_path / "data", max_runs=1, max_total=1, max_results=1)


def test_a_damaged_index_is_said_to_be_one(tmp_path):
    (tmp_path / "index.sqlite3").write_text("this is no database, whatever its name says" * 100)
    with pytest.raises(StoreError, match="cannot be used as an index"):
        Store(tmp_path, max_runs=1, max_total=1, max_results=1)


def test_an_index_that_fails_keeps_the_old_checkpoint(make_client, tmp_path):
    first = make_client()
    upload(first, content=checkpoint(7))
    first.app.state.store.close()
    with closing(sqlite3.connect(tmp_path / "data" / "index.sqlite3")) as index, index:
        index.execute("CREATE TRIGGER refuse BEFORE INSERT ON runs BEGIN SELECT RAISE(FAIL, 'no'); END")
    client = make_client()
    assert upload(client, content=checkpoint(2)).status_code == 500
    assert client.get("/api/runs/run/checkpoint").content == checkpoint(7)
    assert len(files_of(tmp_path / "data")) == 1


def test_what_an_earlier_server_left_half_written_is_removed(make_client, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    ours = "0123456789abcdef" * 2
    for name in (f"{ours}.part", f"{ours}.safetensors", "mine.safetensors", "mine.part"):
        (data / name).write_bytes(checkpoint())
    make_client()
    assert files_of(data) == ["mine.part", "mine.safetensors"]


# Benchmark results and shaders.


def post(client, content, **headers):
    content = content if isinstance(content, (bytes, str)) else json.dumps(content)
    return client.post("/api/bench", content=content, headers={**WRITES, "Content-Type": "application/json", **headers})


def test_results_are_kept_newest_first_and_the_oldest_make_room(make_client):
    client = make_client(max_results=2)
    results = [{"name": name, "nested": {"ms": [1.5, 2]}} for name in ("first", "é", "\ud800")]
    kept = [post(client, result) for result in results]
    assert [response.status_code for response in kept] == [201] * 3
    assert kept[0].json()["result"] == results[0]
    assert [entry["result"] for entry in client.get("/api/bench").json()] == [results[2], results[1]]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b'"text"', 422),
        (b'{"a": NaN}', 422),
        (b'{"a": 1e999}', 422),
        (b"\xff", 422),
        (b'{"a": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", 422),
        (b'{"a": "' + b"x" * 70_000 + b'"}', 413),
    ],
)
def test_a_malformed_result_is_refused(client, content, status):
    response = post(client, content)
    assert response.status_code == status
    assert error_code(response)
    assert client.get("/api/bench").json() == []


def test_a_result_needs_the_token(client):
    assert error_code(post(client, {}, Authorization="Bearer wrong")) == "unauthorized"


@pytest.mark.slow
def test_every_shader_is_listed_with_texts_that_hold(client):
    listed = client.get("/api/shaders").json()
    assert {("optimizers", "adam"), ("kernels", "matmul"), ("lib", "math")} <= {
        (s["folder"], s["name"]) for s in listed
    }
    for entry in listed:
        path = f"/api/shaders/{entry['folder']}/{entry['name']}"
        shader = client.get(path).json()
        assert shader["formula"]
        assert entry["flags"] == shader["flags"]
        for variant in shader["variants"]:
            texts = {target: client.get(f"{path}/{variant}/{target}").json()["text"] for target in ("wgsl", "numpy")}
            wgsl.check(wgsl.parse(texts["wgsl"], variant))
            if texts["numpy"] is not None:
                compile(texts["numpy"], variant, "exec")


@pytest.mark.parametrize(
    "path",
    [
        *("kernels/nothing", "nothing/adam", "%2e%2e/%2e%2e", "kernels/matmul.wgsl"),
        *("kernels/nothing/nothing/ptx", "kernels/matmul/update/ptx", "kernels/matmul/matmul/fortran"),
        *("optimizers/adam/update/ptx/more", "optimizers/adam/%2e%2e/ptx", "optimizers/adam/update/ptx%00"),
    ],
)
def test_there_is_no_other_shader(client, path):
    assert client.get(f"/api/shaders/{path}").status_code == 404
