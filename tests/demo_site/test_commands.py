"""`optirs-web demo` and `optirs-web runs`, as they are run in a terminal."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from demo_servers import TOKEN, checkpoint

import optirs_web as ow
from optirs_web.cli import demo as demo_command
from optirs_web.cli.commands import cli
from optirs_web.demo_site import pages
from optirs_web.demo_site.server import bind, url_of
from optirs_web.demo_site.settings import Settings

BUILT = "from optirs_web.demo_site import pages; pages.why_no_pages = lambda settings: ''; "
MAIN = "from optirs_web.cli import main; main()"
PROGRAM = [sys.executable, "-c", BUILT + MAIN]  # these tests need no pages, which Node.js builds


@pytest.fixture(autouse=True)
def built(monkeypatch):
    monkeypatch.setattr(pages, "why_no_pages", lambda settings: "")


@contextlib.contextmanager
def running_demo(*arguments):
    """The process of a demo, and the lines that it printed."""
    environment = {**os.environ, "OPTIRS_DEMO_TOKEN": TOKEN}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*PROGRAM, "demo", *map(str, arguments)], env=environment, **pipes) as process:
        try:
            yield process, [process.stdout.readline() for _ in range(4)]
        finally:
            process.kill()


def run(*arguments, **environment):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], env=environment)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running_demo("--port", 0, "--data", tmp_path_factory.mktemp("demo")) as (_, lines):
        yield lines[0].split()[-1]


def test_the_demo_prints_where_it_is_and_ends_with_ctrl_c(tmp_path):
    with running_demo("--port", 0, "--data", tmp_path / "new" / "data") as (process, lines):
        assert lines[0].split()[-1].startswith("http://127.0.0.1:")
        assert lines[1].split()[-1] == str(tmp_path / "new" / "data")
        assert lines[2].split()[-1] == TOKEN
        second = run("demo", "--port", 0, "--data", tmp_path / "new" / "data")
        assert second.exit_code == 1
        assert "another server is using" in second.stderr
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("The demo has stopped.\n")


def test_without_pages_it_stops_and_says_how_they_are_built(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(Settings.__init__, "__kwdefaults__", Settings.__init__.__kwdefaults__ | {"static": tmp_path})
    result = run("demo", "--port", 0, "--data", tmp_path / "data")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "The pages are not built." in result.stderr
    assert "`make bundles`" in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_taken_port_is_passed_over_unless_it_was_asked_for(tmp_path):
    with bind("127.0.0.1") as first, bind("127.0.0.1") as second:
        taken = first.getsockname()[1]
        assert second.getsockname()[1] > taken
        assert url_of(second).startswith("http://127.0.0.1:")
        result = run("demo", "--port", taken, "--data", tmp_path)
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{taken}" in result.stderr


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(demo_command, "_NEEDED", ("no_such_package",))
    result = run("demo")
    assert result.exit_code == 1
    assert "pip install 'optirs-web[demo]'" in result.stderr


NOT_ORIGINS = ["", "*", "example.org", "https://a.example/", "https://a.example; script-src *", "https://a.example\n"]
NOT_ADDRESSES = [
    "/demo/",
    "ftp://a.example/",
    "https://a.example/?x",
    'https://a.example/"><script>',
    "https://a.example\n",
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--token", "two words"], "a token may contain only"),
        (["--host", "203.0.113.1"], "cannot listen on 203.0.113.1"),
        (["--port", "70000"], "70000"),
        (["--data", "/dev/null/data"], "cannot save data in"),
        *((["--allow-embed", origin], "is not an origin such as") for origin in NOT_ORIGINS),
        *((["--public-address", address], "is not an address such as") for address in NOT_ADDRESSES),
    ],
)
def test_what_cannot_be_served_is_an_error_of_one_line(tmp_path, arguments, message):
    result = run("demo", "--port", 0, "--data", tmp_path, *arguments)
    assert result.exit_code != 0
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_checkpoint_goes_to_the_demo_and_comes_back(url, tmp_path):
    there, back = tmp_path / "there.safetensors", tmp_path / "back.safetensors"
    there.write_bytes(checkpoint(3, epoch=2))
    pushed = run("runs", "push", there, "trip", "--url", url, OPTIRS_DEMO_TOKEN=TOKEN)
    assert (pushed.exit_code, pushed.stdout.startswith("'trip' is a new run")) == (0, True)
    again = run("runs", "push", there, "trip", "--url", url, "--token", TOKEN)
    assert "'trip' has a new checkpoint" in again.stdout
    listed = run("runs", "list", "--url", url)
    assert "trip " in listed.stdout
    assert "AdamW, epoch 2" in listed.stdout
    assert run("runs", "pull", "trip", back, "--url", url).exit_code == 0
    assert back.read_bytes() == there.read_bytes()
    weight = ow.Parameter([0.0] * 8, device="cpu")
    assert ow.load_checkpoint(back, {"weight": weight}, ow.optim.AdamW([weight])) == {"epoch": 2}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pull", "nothing", "FILE"], "the demo server refused: There is no run 'nothing'."),
        (["pull", "../index", "FILE"], "the demo server refused: "),
        (["pull", "a", "FILE", "--url", "http://127.0.0.1:9"], "no demo server answers at http://127.0.0.1:9"),
        (["pull", "a", "FILE", "--url", "file:///etc/passwd"], "is not an address like"),
        (["push", "GOOD", "a"], "pass --token"),
        (["push", "GOOD", "a", "--token", "wrong"], "the demo server refused: Send the token"),
        (["push", "GOOD", "a b", "--token", TOKEN], "the demo server refused: path.name"),
        (["push", "BAD", "a", "--token", TOKEN], "not a safetensors file"),
        (["push", "FILE", "a", "--token", TOKEN], "does not exist"),
    ],
)
def test_what_goes_wrong_is_said_and_no_file_is_made(url, tmp_path, arguments, message):
    files = {"FILE": tmp_path / "file", "GOOD": tmp_path / "good", "BAD": tmp_path / "bad"}
    files["GOOD"].write_bytes(checkpoint())
    files["BAD"].write_bytes(b"x" * 100)
    arguments = [files.get(argument, argument) for argument in arguments]
    result = run("runs", *arguments, *([] if "--url" in arguments else ["--url", url]), OPTIRS_DEMO_TOKEN=None)
    assert result.exit_code != 0
    assert message in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "good"]


def test_a_file_that_cannot_be_written_is_an_error_of_one_line(url, tmp_path):
    (tmp_path / "good").write_bytes(checkpoint())
    run("runs", "push", tmp_path / "good", "kept", "--url", url, "--token", TOKEN)
    result = run("runs", "pull", "kept", tmp_path / "nowhere" / "file", "--url", url)
    assert result.exit_code == 1
    assert "cannot write" in result.stderr
