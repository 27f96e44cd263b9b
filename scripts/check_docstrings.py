"""Find docstrings that are empty, or that open with words which say nothing about what is returned or done.

    python scripts/check_docstrings.py FOLDER...

Prints each with its file and line, and ends with status 1 if there are any. `make check` runs it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

OPENINGS = re.compile(r"(What|Which|Whether|Of|The same|So many|See above)\b")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def faults_of(path: Path) -> Iterator[str]:
    """Yield the place and the first line of each docstring of a file that says nothing."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) is not None:
            first = text.partition("\n")[0]
            if not first or OPENINGS.match(first):
                yield f"{path}:{node.body[0].lineno}: {first or 'an empty docstring'}"


def main(folders: list[str]) -> int:
    """Check the Python files of the folders."""
    faults = [
        fault
        for folder in folders
        for path in sorted(Path(folder).rglob("*.py"))
        if "node_modules" not in path.parts
        for fault in faults_of(path)
    ]
    for fault in faults:
        print(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
