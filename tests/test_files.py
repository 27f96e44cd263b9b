"""Files that are replaced as a whole: what writers that were killed left, several writers at once."""

import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
from requirements import missing

from optirs_web import files
from optirs_web.files import write_whole

MIB = 1 << 20
WRITER = """
import sys
from optirs_web.files import write_whole

def content():
    yield bytes(1 << 20)
    print("writing", flush=True)
    sys.stdin.readline()
    yield b"end"

write_whole(sys.argv[1], content())
"""


def start_writer(path):
    """A process that is in the middle of a write until it reads a line."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    return process


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_write_left_is_removed_by_the_next_to_that_path(tmp_path):
    path, other = tmp_path / "run[1].safetensors", tmp_path / "run1.safetensors"
    writers = [start_writer(target) for target in (path, path, other)]
    for process in writers:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert len(names_in(tmp_path)) == 3
    write_whole(path, [b"new"])
    left = names_in(tmp_path)
    assert (left[1], path.read_bytes()) == (path.name, b"new")
    assert len(left) == 2, "that of another path stays"
    assert left[0].startswith(".run1.safetensors.")


def test_the_part_of_a_living_process_stays(tmp_path):
    path = tmp_path / "run.safetensors"
    process = start_writer(path)
    write_whole(path, [b"new"])
    assert len(names_in(tmp_path)) == 2
    process.communicate("\n")
    assert (process.returncode, names_in(tmp_path)) == (0, [path.name])
    assert path.read_bytes() == bytes(MIB) + b"end"


def test_the_part_of_another_thread_stays(tmp_path):
    path = tmp_path / "run.safetensors"

    def content():
        yield b"slow"
        write_whole(path, [b"quick"])
        assert path.read_bytes() == b"quick"

    write_whole(path, content())
    assert (names_in(tmp_path), path.read_bytes()) == ([path.name], b"slow")


def test_writers_at_once_each_write_all_of_theirs(tmp_path):
    path = tmp_path / "run.safetensors"
    contents = [bytes([number]) * 1000 for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: write_whole(path, [content]), contents))
    assert (names_in(tmp_path), path.read_bytes() in contents) == ([path.name], True)


def test_a_part_that_is_taken_for_abandoned_before_it_is_locked_is_written_again(tmp_path, monkeypatch):
    if files.fcntl is None:
        missing("linux", "there are no locks on files")
    path, lock, removed = tmp_path / "run", files.fcntl.flock, []

    def late(file, how):
        if not removed:
            removed.extend(tmp_path.iterdir())
            os.unlink(removed[0])
        lock(file, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    write_whole(path, [b"new"])
    assert (len(removed), names_in(tmp_path), path.read_bytes()) == (1, ["run"], b"new")


@pytest.mark.parametrize(
    "name",
    [".run.0123abcd.part.bak", ".run.0123abcd", "run.0123abcd.part", ".run.0123ABCD.part", ".runs.0123abcd.part"],
)
def test_files_of_other_names_stay(tmp_path, name):
    (tmp_path / name).write_bytes(b"theirs")
    write_whole(tmp_path / "run", [b"new"])
    assert names_in(tmp_path) == sorted([name, "run"])


def test_what_is_no_file_stays(tmp_path):
    if not hasattr(os, "mkfifo"):
        missing("linux", "the system has no named pipes")
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    os.symlink(tmp_path / "elsewhere", tmp_path / ".run.00000000.part")
    os.mkfifo(tmp_path / ".run.00000001.part")
    os.mkdir(tmp_path / ".run.00000002.part")
    write_whole(tmp_path / "run", [b"new"])
    assert len(names_in(tmp_path)) == 5
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"


@pytest.mark.parametrize(("age", "left"), [(0, 2), (7200, 1)])
def test_without_locks_a_part_is_abandoned_after_an_hour(tmp_path, monkeypatch, age, left):
    monkeypatch.setattr(files, "fcntl", None)  # as on Windows
    partial = tmp_path / ".run.0123abcd.part"
    partial.write_bytes(b"old")
    written = partial.stat().st_mtime - age
    os.utime(partial, (written, written))
    write_whole(tmp_path / "run", [b"new"])
    assert (len(names_in(tmp_path)), (tmp_path / "run").read_bytes()) == (left, b"new")


FULL_DISK = """
import resource, signal, sys
from optirs_web.files import write_whole

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_whole(sys.argv[1], [bytes(900), bytes(900)])  # both are buffered, so that closing the file fails once more
"""


def test_a_write_for_which_there_is_no_room_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "run.safetensors"
    path.write_bytes(b"old")
    process = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True)
    assert "OSError" in process.stderr
    assert (names_in(tmp_path), path.read_bytes()) == ([path.name], b"old")
