"""The WGSL front end: parse, check, link and print a written-down subset of WGSL.

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

from .checker import check
from .fold import fold
from .linker import Loader, link, package_loader
from .lints import is_map_module, lint
from .parser import parse
from .print_wgsl import print_expression, print_wgsl

__all__ = [
    "Loader",
    "check",
    "fold",
    "is_map_module",
    "link",
    "lint",
    "package_loader",
    "parse",
    "print_expression",
    "print_wgsl",
]
