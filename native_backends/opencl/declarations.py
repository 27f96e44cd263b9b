"""The functions of OpenCL C that printed kernels call, declared one by one.

PoCL reads a header with all 18,000 of them for each program: 70 of the 82 ms that it takes to look at a short one. A
text that declares what it calls is built without that header (`WITHOUT_HEADER`), and means the same.
"""

from __future__ import annotations

import re

__all__ = ["WITHOUT_HEADER", "declared"]

WITHOUT_HEADER = "-D_OPENCL_H_"
"""Tells the compiler that the header, which is Clang's, was read already; types and macros stand in another one."""

_ATTRIBUTES = {"pure": "overloadable, const", "reads": "overloadable, pure", "": "overloadable"}


def _with(kind: str, result: str, names: str, *parameters: str) -> dict[str, list[str]]:
    head = f"__attribute__(({_ATTRIBUTES.get(kind, f'overloadable, {kind}')})) {result}"
    return {name: [f"{head} {name}({', '.join(parameters)});"] for name in names.split()}


def _integers(names: str, *parameters: str) -> dict[str, list[str]]:
    """Return declarations of functions by name, for `int` and for `uint`, which replace ``T`` in the parameters."""
    declared: dict[str, list[str]] = {}
    for type_ in ("int", "uint"):
        made = _with("pure", type_, names, *(parameter.replace("T", type_) for parameter in parameters))
        for name, lines in made.items():
            declared.setdefault(name, []).extend(lines)
    return declared


def _atomics(names: str, *values: str) -> dict[str, list[str]]:
    """Return declarations of atomic functions by name, for `int` and `uint` in global and in local memory."""
    declared: dict[str, list[str]] = {}
    for space in ("__global", "__local"):
        for type_ in ("int", "uint"):
            made = _with(
                "", type_, names, f"volatile {space} {type_} *", *(value.replace("T", type_) for value in values)
            )
            for name, lines in made.items():
                declared.setdefault(name, []).extend(lines)
    return declared


_DECLARATIONS = {
    **_with("pure", "size_t", "get_global_id get_local_id get_group_id get_num_groups", "uint"),
    **_with("convergent", "void", "barrier", "cl_mem_fence_flags"),
    **_with(
        "pure", "float",
        "acos acosh asin asinh atan atanh ceil cos cosh exp exp2 fabs floor log log2 rint sin sinh sqrt tan tanh trunc",
        "float",
    ),
    **_with("pure", "float", "atan2 fmax fmin fmod pow", "float", "float"),
    **_with("pure", "float", "fma", "float", "float", "float"),
    **_with("pure", "float", "ldexp", "float", "int"),
    **_integers("clz popcount", "T"),
    **_integers("max min", "T", "T"),
    **_with("reads", "float", "vload_half", "size_t", "const __private half *"),
    **_with("", "void", "vstore_half_rte", "float", "size_t", "__private half *"),
    **_atomics("atomic_add atomic_and atomic_max atomic_min atomic_or atomic_sub atomic_xchg atomic_xor", "T"),
    **_atomics("atomic_cmpxchg", "T", "T"),
}  # fmt: skip


def declared(text: str) -> str:
    """The text behind declarations of what it calls."""
    called = set(re.findall(r"\b[a-z]\w*(?=\()", text))
    lines = [line for name, lines in _DECLARATIONS.items() if name in called for line in lines]
    return "\n".join((*lines, text))
