"""The WGSL front end: parse, check, link and print a written-down subset of WGSL.

Example:
    >>> from optirs_web.wgsl import link, parse, print_wgsl
    >>> source = '''
    ... override twice: bool = false;
    ... fn f(x: f32) -> f32 {
    ...     if twice { return 2 * x; }
    ...     return x;
    ... }
    ... '''
    >>> print(print_wgsl(link(parse(source, "f.wgsl"), constants={"twice": True})))
    fn f(x: f32) -> f32 {
        return 2.0 * x;
    }
    <BLANKLINE>
"""

from . import rule_shell, shell, slot_storage, syntax, transform_glue, types
from .checker import check
from .dependence import dependencies, live_slots
from .fold import fold
from .linker import Loader, link, package_loader
from .lints import is_map_module, lint
from .parser import parse
from .print_python import compile_python, print_python
from .print_wgsl import print_wgsl
from .straighten import straighten

__all__ = [
    "Loader",
    "check",
    "compile_python",
    "dependencies",
    "fold",
    "is_map_module",
    "link",
    "lint",
    "live_slots",
    "package_loader",
    "parse",
    "print_python",
    "print_wgsl",
    "rule_shell",
    "shell",
    "slot_storage",
    "straighten",
    "syntax",
    "transform_glue",
    "types",
]
