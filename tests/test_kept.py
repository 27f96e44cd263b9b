"""The file in which figures are kept: where it is, who may write to it, and what it may hold."""

import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import platformdirs
import pytest
from requirements import missing

from optirs_web.runtime import kept, user_cache
from optirs_web.runtime.backend import AdapterInfo

INFO = AdapterInfo("vulkan", 0, "a card (driver 1)")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "optirs-web"


@pytest.fixture
def file(cache):
    """The file, with something in it."""
    kept.store("a card", {"probe": [1.0, 2.0]})
    return cache / "measured.json"


def test_figures_are_kept_by_name_and_subject(file):
    kept.store("a card", {"rates": {"light": 3.0}, "probe": [4.0]})
    kept.store("another", {"probe": [5.0]})
    assert kept.load("a card") == {"probe": [4.0], "rates": {"light": 3.0}}
    assert kept.load("another") == {"probe": [5.0]}
    assert kept.load("a third") == {}
    assert sorted(one.name for one in file.parent.iterdir()) == ["measured.json", "measured.json.lock"]


def test_the_subject_names_device_driver_machine_and_library():
    subject = kept.device_and_machine(INFO)
    for part in ("vulkan: a card (driver 1)", f"{os.cpu_count()} cores", "optirs-web 0"):
        assert part in subject
    assert subject != kept.device_and_machine(AdapterInfo("vulkan", 0, "a card (driver 2)"))
    assert subject != kept.device_and_machine(AdapterInfo("vulkan", 1, "a card (driver 1)"))


HOSTILE = {
    "cut off": lambda whole: whole[: len(whole) // 2],
    "of bytes": lambda whole: "\x00\x01\udcff",
    "a list": lambda whole: "[1, 2]",
    "a list of a subject": lambda whole: '{"a card": [1, 2]}',
    "brackets in brackets": lambda whole: "[" * 100_000,
    "digits without end": lambda whole: '{"a card": {"probe": ' + "9" * 100_000 + "}}",
    "17 MiB": lambda whole: whole + " " * (17 << 20),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_damaged_file_is_ignored_with_a_warning_and_replaced(file, what):
    file.write_text(HOSTILE[what](file.read_text()), errors="surrogateescape")
    with pytest.warns(UserWarning, match=r"measured\.json is damaged, and is ignored: what it kept is measured again"):
        assert kept.load("a card") == {}
    kept.store("another", {"probe": [3.0]})
    assert json.loads(file.read_text()) == {"another": {"probe": [3.0]}}


def test_an_empty_file_and_one_that_is_no_file_hold_nothing(file):
    file.write_text("")
    assert kept.load("a card") == {}
    file.unlink()
    file.mkdir()
    assert kept.load("a card") == {}
    with pytest.raises(OSError, match="measured"):
        kept.store("a card", {"probe": [1.0]})


WRITING = """
import sys
from optirs_web.runtime import kept

for number in range(60):
    kept.store("both", {f"{sys.argv[1]} {number}": number, "shared": [number] * 1000})
    assert len(kept.load("both")["shared"]) == 1000
"""


def test_processes_and_threads_that_write_at_once_lose_nothing(cache):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(WRITING)]
    both = [subprocess.Popen([*command, one], stderr=subprocess.PIPE) for one in "ab"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: kept.store("threads", {str(one): one}), range(20)))
    for one in both:
        _, complaint = one.communicate(timeout=240)
        assert one.returncode == 0, complaint.decode()
    names = {f"{process} {number}" for process in "ab" for number in range(60)}
    assert set(kept.load("both")) == {*names, "shared"}
    assert kept.load("threads") == {str(one): one for one in range(20)}
    assert sorted(one.name for one in cache.iterdir()) == ["measured.json", "measured.json.lock"]


HOLDING = """
import sys
from optirs_web.runtime import kept
with kept._alone():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_process_that_never_lets_go_is_an_error_and_one_that_was_killed_lets_go(file, monkeypatch):
    monkeypatch.setattr(kept, "_PATIENCE", 0.05)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDING], **pipes) as holding:
        assert holding.stdout.readline().strip() == b"held"
        with pytest.raises(OSError, match=r"another process holds .*measured\.json\.lock"):
            kept.store("a card", {"probe": [3.0]})
        assert kept.load("a card") == {"probe": [1.0, 2.0]}
        holding.kill()
    kept.store("a card", {"probe": [3.0]})
    assert kept.load("a card") == {"probe": [3.0]}


def test_a_folder_that_cannot_be_written_is_an_error_that_is_logged_where_nobody_waits_for_it(
    cache, monkeypatch, tmp_path, caplog
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        kept.store("a card", {"probe": [1.0]})
    with caplog.at_level("INFO", "optirs_web"):
        kept.store_if_possible("a card", {"probe": [1.0]})
    assert "what was measured is used, but cannot be kept: " in caplog.text
    assert kept.load("a card") == {}
    assert (tmp_path / "file").read_bytes() == b""


# The folder.


def test_the_folder_is_where_the_platform_wants_it(cache, monkeypatch, tmp_path):
    assert user_cache.folder() == str(cache)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache.folder() == platformdirs.user_cache_dir("optirs-web", False, opinion=False)


def test_a_user_without_a_home_has_no_folder(tmp_path, monkeypatch):
    if os.name == "nt":
        missing("linux", "Windows has no HOME")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")  # the specification ignores what is not absolute
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_cache.folder().startswith(str(tmp_path / "home"))
    monkeypatch.setenv("HOME", "~")
    monkeypatch.setattr(os, "getuid", lambda: 4_242_424)  # whom the system does not know
    assert user_cache.folder().startswith(os.devnull)
    with pytest.raises(OSError, match=os.devnull):
        kept.store("a card", {"probe": [1.0]})
    assert user_cache.sealed(f"{user_cache.folder()}/x") is None
    assert list(tmp_path.iterdir()) == []
