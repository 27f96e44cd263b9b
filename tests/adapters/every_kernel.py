"""Every kernel that the library makes: by name, and of programs.

By name are those of every file of ``shaders``, as `optirs-web shader` makes them: each kernel, each map function and
each part of each rule, with each combination of their flags and with each choice of the tuner; and, without flags, over
elements of 16 bits where they take them. `programs` make what depends on options, shapes, types and neighbours:
strided, fused, packed, factored and sparse kernels, transforms in front of rules, schedules.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import product
from typing import NamedTuple

from programs import Program, programs
from recorder import PROMISED, Recorder

from optirs_web.cli.shader_names import PARTS, Flags, Source, of_16_bits, sources
from optirs_web.runtime.attention_tiles import COLUMN_TILES, TILES as ATTENTION_TILES, attention_kernel
from optirs_web.runtime.backend import MatrixShape
from optirs_web.runtime.form_kernels import FormKernel
from optirs_web.runtime.kernels import CooperativeKernel, Kernel
from optirs_web.runtime.map_kernels import MapKernel
from optirs_web.runtime.packed_kernels import packed
from optirs_web.runtime.products import (
    SMALL,
    TILE_CLASSES,
    Staging,
    band_kernel,
    by_quads,
    by_tiles,
    convolution_by_tiles,
)
from optirs_web.runtime.rule_kernels import RuleKernel
from optirs_web.runtime.rules import Rule
from optirs_web.runtime.subgroup_matrices import MATRIX_TILES, by_matrices
from optirs_web.runtime.tuner.candidates import TUNABLE, tunable_of
from optirs_web.wgsl import package_loader, syntax

__all__ = ["File", "Made", "files_of", "makers", "shader_files"]

File = tuple[str, str]
"""A folder of ``shaders`` and a name in it."""


class Made(NamedTuple):
    """Where a kernel comes from, it, and whether every adapter of WebGPU has workgroups of its size."""

    name: str
    kernel: Kernel
    fits: bool = True


MATRICES = [
    MatrixShape("f32", 8, 8, 8),
    *(MatrixShape("f16", *sizes) for sizes in [(8, 8, 8), (8, 16, 16), (16, 8, 16), (16, 16, 16)]),
]
"""Matrix sizes that Dawn lists for GPUs of Apple, Intel, NVIDIA and AMD."""
SUBGROUPS = (16, 32, 64, 128)
"""Invocations of the largest subgroups of adapters."""

_HALVES = ("f16", "float16", "bfloat16")
_TUNED_MAPS = ("add", "relu")  # the shells of the others are the same


def makers() -> list[Callable[[], Iterator[Made]]]:
    """All that make kernels, in the same order in every process; the programs of one process share a device."""
    recorders = Recorder(), Recorder(["shader-f16"]), Recorder(runs=True)
    every = [item for group in sources().values() for item in group.items()]
    named = [partial(_by_name, *item) for item in every]
    named += [partial(_attention, *item) for item in every if item[0] in ("attention", "attention_grad")]
    return [*named, *(partial(_of_program, recorders, *program) for program in programs())]


def shader_files() -> set[File]:
    """Each that is more than a part of others."""
    root = files("optirs_web.shaders")
    return {
        (folder, file.name.removesuffix(".wgsl"))
        for folder in ("arena", "elementwise", "kernels", "optimizers", "rows", "transforms")
        for file in root.joinpath(folder).iterdir()
        if file.name.endswith(".wgsl")
    }


def files_of(kernel: Kernel) -> set[File]:
    """Those that a kernel is made of; not all of them for one that is made of others."""
    match kernel:
        case RuleKernel(rule=rule):
            return {(rule.folder, rule.name), *(("transforms", stage.name) for stage in rule.stages)}
        case FormKernel(form=form) | MapKernel(form=form):
            return {form.file}
        case CooperativeKernel(name=name):
            return {("kernels", name)}
    return set()


def _of_program(recorders: tuple[Recorder, Recorder, Recorder], name: str, program: Program) -> Iterator[Made]:
    plain, with_f16, running = recorders
    used = (running,) if name.startswith("driven") else (plain, with_f16) if "float16" in name else (plain,)
    for recorder in used:
        program(recorder.device)
        for kernel in recorder.take():
            yield Made(name, kernel)
            if name.startswith("fused"):
                yield from _tuned(name, kernel)


def _by_name(name: str, source: Source) -> Iterator[Made]:
    for flags in _combinations(source):
        for part in _parts(source):
            kernel = source.make(flags, part)
            its_name = " ".join([name, part, *map(str, flags.items())])
            yield Made(its_name, kernel)
            yield from _tuned(its_name, kernel)
            if _has_form_by_subgroups(source, kernel):
                by_subgroups = source.make({**flags, "SUBGROUPS": True}, part)
                yield Made(f"{its_name} by subgroups", by_subgroups)
                yield from _tuned(f"{its_name} by subgroups", by_subgroups)
            if not any(flags.values()):
                yield from {"convolution": _convolutions_on_gpus, "convolution_band": _bands}.get(name, list)()
            for elements in () if any(flags.values()) else _HALVES:  # they change nothing about elements
                if (half := of_16_bits(source, kernel, elements)) is not None:
                    yield Made(f"{its_name} of {elements}", half)


def _has_form_by_subgroups(source: Source, kernel: Kernel) -> bool:
    """Return whether a kernel reduces by subgroups with the override for it.

    Those over windows do not, nor those that look for elements.
    """
    if isinstance(kernel, FormKernel):
        return kernel.layout != "windows" and not kernel.form.finds_elements
    module = package_loader()((source.folder, source.file))
    imports = [declaration for declaration in module.declarations if isinstance(declaration, syntax.Import)]
    return any("SUBGROUPS" in dict(import_.conditions) for import_ in imports)


def _parts(source: Source) -> list[str]:
    """Those that a rule has; the other kernels have only themselves."""
    if source.folder != "optimizers":
        return [""]
    rule = Rule(source.file)
    return [part for part in PARTS if part in ("update", "advance") or rule.has(part)]


def _combinations(source: Source) -> Iterator[Flags]:
    module = package_loader()((source.folder, source.file))
    declared = [declaration for declaration in module.declarations if isinstance(declaration, syntax.Override)]
    values = {
        override.name: (False, True)
        for override in declared
        if override.type_name and override.type_name.name == "bool"
    }
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def _tuned(name: str, kernel: Kernel) -> Iterator[Made]:
    tunable = tunable_of(kernel)
    if tunable is None or (
        isinstance(kernel, MapKernel) and not (name.startswith("fused") or kernel.name in _TUNED_MAPS)
    ):
        return
    for choice in tunable.candidates[1:]:
        invocations, nbytes = tunable.needs(choice)
        fits = invocations <= PROMISED.max_invocations and nbytes <= PROMISED.max_workgroup_bytes
        yield Made(f"{name} {choice}", tunable.variant(kernel, choice), fits)
    if isinstance(kernel, CooperativeKernel) and tunable is TUNABLE["matmul"] and "QUADS" not in kernel.constants:
        yield from _as_on_gpus(kernel.name)


def _as_on_gpus(name: str) -> Iterator[Made]:
    """Products by the tiles that a table chooses, with operands read by vectors and by elements."""
    tiles = {tile for tile_class in TILE_CLASSES.values() for tile in tile_class.tiles} - {SMALL}
    for b in Staging:
        yield Made(f"{name} quads, {b.name}", by_quads(name, b))
    for tile, a, b in product(sorted(tiles), Staging, Staging):
        yield Made(f"{name} {tile}, {a.name} {b.name}", by_tiles(name, tile, a, b))
    yield from _matrices(name)


def _matrices(name: str) -> Iterator[Made]:
    """Products by subgroup matrices of each size, of float32 and of float16."""
    for shape, matrices, largest in product(MATRICES, MATRIX_TILES, SUBGROUPS):
        if matrices.fits(shape, replace(PROMISED, max_workgroup_bytes=1 << 16)):
            kernel = by_matrices(name, matrices, shape, largest)
            fits = matrices.nbytes(shape.element) <= PROMISED.max_workgroup_bytes
            made = f"{name} {matrices}, {shape.rows}x{shape.columns}x{shape.inner} of {shape.element}, {largest}"
            yield Made(made, kernel, fits)
            for kinds in (("float16", "float16", ""), ("f16", "f16", "f16")) if name == "matmul" else ():
                yield Made(f"{made}, of {' '.join(kinds)}", packed(kernel, kinds), fits)


def _convolutions_on_gpus() -> Iterator[Made]:
    """Convolutions by the tiles that a table chooses, with filters read by vectors and by elements."""
    tiles = {tile for tile_class in TILE_CLASSES.values() for tile in tile_class.tiles if tile.rows <= 64} - {SMALL}
    for tile, a, along_depth in product(sorted(tiles), (Staging.BY_DEPTH, Staging.BY_ELEMENTS), (False, True)):
        name = f"convolution {tile}, {a.name}{' along depth' if along_depth else ''}"
        yield Made(name, convolution_by_tiles(tile, a, along_depth=along_depth))


def _bands() -> Iterator[Made]:
    for rows, width, by_vectors, is_flipped in product((32, 64), (8, 16, 32, 64), (False, True), (False, True)):
        name = f"convolution_band {rows} {width}{' by vectors' * by_vectors}{' flipped' * is_flipped}"
        yield Made(name, band_kernel(rows, width, BY_VECTORS=by_vectors, IS_FLIPPED=is_flipped))


def _attention(name: str, source: Source) -> Iterator[Made]:
    """Attention on software adapters, and on GPUs by each tile, also over elements of 16 bits."""
    for column_tiles in COLUMN_TILES:
        chosen = [("software", ATTENTION_TILES[0], False)]
        chosen += [("discrete", tile, by_vectors) for tile in ATTENTION_TILES for by_vectors in (False, True)]
        for tiles, tile, by_vectors in chosen:
            kernel = attention_kernel(source.file, tiles, tile, column_tiles, by_vectors=by_vectors)
            its_name = f"{name} {tiles}, {tile}, {column_tiles} {by_vectors}"
            fits = tile.invocations <= PROMISED.max_invocations and tile.nbytes <= PROMISED.max_workgroup_bytes
            yield Made(its_name, kernel, fits)
            for elements in _HALVES if column_tiles == COLUMN_TILES[0] and not by_vectors else ():
                if (half := of_16_bits(source, kernel, elements)) is not None:
                    yield Made(f"{its_name} of {elements}", half, fits)
