"""What pyproject.toml cannot say about the wheel: it lacks the demo, and its internal modules lack comments.

A page downloads the wheel before it can train, so each kilobyte is waited for.
"""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# An editable install has it too; the wheel that holds it is made by demo_site/pyproject.toml.
DEMO = "optirs_web.demo_site"

# Packages and modules that hold nothing users call.
INTERNAL = (
    "optirs_web.browser",
    "optirs_web.hostdata",
    "optirs_web.native_backends",
    "optirs_web.ops.launch",
    "optirs_web.optim.distance",
    "optirs_web.optim.factored",
    "optirs_web.optim.host_driven",
    "optirs_web.optim.in_place",
    "optirs_web.optim.layout",
    "optirs_web.optim.line_search",
    "optirs_web.optim.matrices",
    "optirs_web.optim.pipeline",
    "optirs_web.optim.sides",
    "optirs_web.optim.slot_codec",
    "optirs_web.optim.sparse_layout",
    "optirs_web.optim.stacks",
    "optirs_web.optim.state",
    "optirs_web.optim.vectors",
    "optirs_web.runtime.arena",
    "optirs_web.runtime.buffer",
    "optirs_web.runtime.dtypes",
    "optirs_web.runtime.factored",
    "optirs_web.runtime.kernels",
    "optirs_web.runtime.pool",
    "optirs_web.runtime.program",
    "optirs_web.runtime.rows",
    "optirs_web.runtime.rules",
    "optirs_web.runtime.schedules",
    "optirs_web.runtime.transform_kernels",
    "optirs_web.wgsl",
)


def without_comments(source: str) -> str:
    """The module with empty docstrings and no comments; what is left stays on its lines, as tracebacks name them."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}
    words = [one for one in tokens if one.type not in layout]
    comments = [one for one in tokens if one.type == tokenize.COMMENT and not one.string.startswith("# type:")]
    docstrings = [
        word
        for before, word, after in zip([None, *words], words, words[1:], strict=False)
        if word.type == tokenize.STRING
        and (before is None or before.type == tokenize.NEWLINE)
        and after.type == tokenize.NEWLINE
    ]
    lines = source.split("\n")
    for token in sorted(comments + docstrings, key=lambda one: one.start, reverse=True):  # columns before stay valid
        (row, column), (end_row, end_column) = token.start, token.end
        before, after = lines[row - 1][:column], lines[end_row - 1][end_column:]
        line = before + '""' + after if token in docstrings else before.rstrip() + after
        lines[row - 1 : end_row] = [line, *[""] * (end_row - row)]
    return "\n".join(lines)


class BuildLibrary(build_py):
    """Copies the library's modules into the wheel; an editable install leaves them where they are."""

    def finalize_options(self) -> None:
        """Take the packages of pyproject.toml but one."""
        super().finalize_options()
        self.packages = [one for one in self.packages if one != DEMO]

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        """Copy a module, without its comments where nobody looks for help."""
        target, copied = super().build_module(module, module_file, package)
        if f"{package}.{module}.".startswith(tuple(f"{one}." for one in INTERNAL)):
            path = Path(target)
            path.write_text(without_comments(path.read_text("utf-8")), "utf-8", newline="\n")
        return target, copied


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildLibrary})
