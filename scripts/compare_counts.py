"""Compare what the host does, and the instructions of kernels, between a commit and the working tree.

python scripts/compare_counts.py BASE

Runs `tests/counts.py` as it is here on both, each in processes of its own; prints every count that differs, and exits
with status 1 where one grew. Times are not compared.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("native_backends", "shaders", "examples", "demo_site")
sys.path.insert(0, str(ROOT / "tests"))

Counts = dict[str, dict[str, dict[str, int]]]


@contextmanager
def clone_of(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, and the counting of the working tree."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
        try:
            shutil.copy(ROOT / "tests" / "counts.py", folder / "tests")
            for name in MAPPED:  # an editable install would map these to the working tree's
                (folder / "optirs_web" / name).symlink_to(folder / name)
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def counts_of(clone: Path) -> Counts:
    """Return the counts by device and case; what cannot be counted is left out and named."""
    import counts

    path = os.pathsep.join([str(clone), sysconfig.get_path("purelib")])
    naga = ROOT / "demo_site/frontend/node_modules/naga-wasm/dist/wasm/naga_bg.wasm"
    environment = {"PYTHONPATH": path, **({"OPTIRS_NAGA": str(naga)} if naga.exists() else {})}
    result: Counts = {}
    for name in (*counts.DEVICES, "spirv"):
        try:
            # -S: no finder of an editable install.
            result[name] = counts.measured(name, clone / "tests/counts.py", ["-S"], **environment)
        except RuntimeError as error:
            print(f"{clone}: {name}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
    return result


def changes(before: Counts, now: Counts) -> list[tuple[str, str, str, int, int]]:
    """Return device, case, name and both counts wherever they differ."""
    return [
        (device, case, name, old, new)
        for device, cases in now.items()
        for case, named in cases.items()
        for name, new in named.items()
        if (old := before.get(device, {}).get(case, {}).get(name)) is not None and old != new
    ]


def main(base: str) -> Any:
    """Print the table; return an error's text where a count grew."""
    with clone_of(base) as folder:
        before = counts_of(folder)
    changed = changes(before, counts_of(ROOT))
    print(f"{'device':8}{'case':16}{'count':14}{base[:14]:>16}{'now':>16}")
    for device, case, name, old, new in changed:
        print(f"{device:8}{case:16}{name:14}{old:16,}{new:16,}  {new / old - 1 if old else float('inf'):+.1%}")
    if not changed:
        print("nothing differs")
    grown = sum(new > old for *_, old, new in changed)
    return f"{grown} counts grew" if grown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
