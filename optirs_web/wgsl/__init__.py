"""The WGSL front end: parse, check, link and print a written-down subset of WGSL.

Printing for Python (`print_python`), the lints (`lints`) and what transforms need (`transform_glue`) are imported from
their modules, as few need them: in a browser each module costs time to compile.

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

from . import advance_shell, measure_shell, rule_shell, shell, slot_storage, syntax, types, update_shell
from .checker import check
from .dependence import dependencies, live_slots
from .fold import fold
from .linker import Loader, add_module, declarations_of, link, load_map_module, package_loader
from .parser import parse
from .print_wgsl import print_wgsl
from .straighten import straighten

__all__ = [
    "Loader",
    "add_module",
    "advance_shell",
    "check",
    "declarations_of",
    "dependencies",
    "fold",
    "link",
    "live_slots",
    "load_map_module",
    "measure_shell",
    "package_loader",
    "parse",
    "print_wgsl",
    "rule_shell",
    "shell",
    "slot_storage",
    "straighten",
    "syntax",
    "types",
    "update_shell",
]
