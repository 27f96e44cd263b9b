"""The work of one process of `verify`: it makes some of the kernels, and has the compilers look at those."""

import gc
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from compilers import Nvidia, Shader, Tint, Verdict, translate
from every_kernel import File, Made, files_of, makers, shader_files

from optirs_web.runtime.kernels import Kernel
from optirs_web.wgsl.print_c import print_c
from optirs_web.wgsl.syntax import Call
from optirs_web.wgsl.tree import walk
from optirs_web.wgsl.vocabulary import MATRIX_EXTENSION

__all__ = ["Share", "begin", "different", "share"]

_AT_ONCE = 24
"""What makes kernels that a process takes at once: neighbours have kernels in common."""
_BUFFERS = 8
"""That Dawn's null backend binds."""


class Share(NamedTuple):
    """The results of one process: verdicts of its shaders, Tint's output, and the files of which no kernel was made.

    Attributes:
        refused: the errors of Tint and of NVIDIA's compiler.
    """

    verdicts: list[Verdict]
    tint: str
    refused: list[str]
    unused: set[tuple[str, str]]


_next: Any = None


def begin(shared: Any) -> None:
    """Before `share`: the number of what is to be taken next, which the processes have in common."""
    global _next
    _next = shared


def share(architectures: Iterable[str] = ()) -> Share:
    """Take what others have not taken, until there is nothing left.

    Args:
        architectures: NVIDIA's, as "sm_80", for which machine code is made, too.
    """
    gc.disable()  # of the trees that fill the memory hardly one is garbage
    unused, tint, nvidia = shader_files(), Tint(), Nvidia(architectures)
    verdicts = []
    for shader in different(_taken(), unused):
        tint.take(shader)
        nvidia.take(shader)
        verdicts.append(translate(shader))
    version, looked_at, refused = tint.finish()
    assert looked_at == len(verdicts)
    return Share(verdicts, version, refused + nvidia.finish(), unused)


def different(kernels: Iterable[Made], unused: set[File]) -> Iterator[Shader]:
    """Those whose text has not come before; the files that they are made of are taken away from `unused`."""
    known = set()
    for made in kernels:
        unused -= files_of(made.kernel)
        text = made.kernel.wgsl("tint")
        if text not in known:
            known.add(text)
            fits = made.fits and len(made.kernel.bindings) <= _BUFFERS
            robust = not made.kernel.stays_in_bounds
            by_matrices = MATRIX_EXTENSION in text
            is_for_nvidia = not by_matrices and _is_for_nvidia(made.kernel)
            naga = None if by_matrices else made.kernel.wgsl("naga")
            cuda = print_c(made.kernel.module, "cuda", robust=robust) if is_for_nvidia else None
            yield Shader(f"{made.kernel.name} ({made.name})", naga, text, cuda, fits)


def _is_for_nvidia(kernel: Kernel) -> bool:
    """Not what works by quads: its workgroups are smaller than a subgroup of CUDA."""
    return not any(isinstance(node, Call) and node.callee.name.startswith("quadSwap") for node in walk(kernel.module))


def _taken() -> Iterator[Made]:
    every = makers()
    while True:
        with _next.get_lock():
            first = _next.value
            _next.value += _AT_ONCE
        if first >= len(every):
            return
        for make in every[first : first + _AT_ONCE]:
            yield from make()
