"""Runs many programs at once on each target, as it is printed for it, and says where results are wrong."""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import c_targets
import numpy as np
from map_functions import (
    DTYPES,
    WORKGROUP,
    entry_point,
    evaluate,
    evaluate_in_jax,
    flat,
    nested,
    parameter_types,
    result_leaves,
    run_on_gpu,
    typed,
    words,
)
from requirements import vulkan_device

from optirs_web.wgsl import check, link, package_loader, parse, print_wgsl
from optirs_web.wgsl.jax_dialect import JAX
from optirs_web.wgsl.lints import lint
from optirs_web.wgsl.numba_dialect import NUMBA
from optirs_web.wgsl.print_python import compile_python, print_python, python_name
from optirs_web.wgsl.python_dialects import NUMPY
from optirs_web.wgsl.syntax import Function

from . import exact_programs, real_programs
from .choices import Choices
from .intervals import outside, regrouping

SAMPLES = 256
KINDS = ("exact", "real", "kernel")


@dataclass(frozen=True)
class Program:
    """One program: the WGSL of a function and of what it calls.

    Attributes:
        name: of the function.
        kind: "exact" and "real" run everywhere, "kernel" on targets with shaders.
        choices: what it is made of.
        text: without the header.
        expected: of a real one, what computes the intervals of its results; otherwise None.
    """

    name: str
    kind: str
    choices: Choices
    text: str
    expected: object = None

    @classmethod
    def of(cls, kind, seed=None, given=None, name="p"):
        """That of a seed, or of decisions."""
        choices = Choices(seed, given)
        if kind == "real":
            text, expected = real_programs.write(choices, name)
        else:
            text, expected = exact_programs.write(choices, name, kind == "kernel"), None
        return cls(name, kind, choices, text, expected)


_HEADERS = {
    "exact": exact_programs.HEADER,
    "real": real_programs.HEADER,
    "kernel": exact_programs.HEADER + exact_programs.KERNEL_HEADER,
}


class Batch:
    """Programs of one kind, which get the same inputs.

    Attributes:
        source: WGSL as it was written.
        module: linked.
        functions: those of the programs, in the tree.
        leaves: the inputs, one array for each scalar among the parameters.
    """

    def __init__(self, programs):
        self.programs, self.kind = programs, programs[0].kind
        self.source = _HEADERS[self.kind] + "".join(program.text for program in programs)
        names = [program.name for program in programs]
        self.module = link(parse(self.source, "fuzz.wgsl"), package_loader(), roots=names)
        if self.kind != "kernel":
            lint(self.module)
        by_name = {
            declaration.name: declaration
            for declaration in self.module.declarations
            if isinstance(declaration, Function)
        }
        self.functions = [by_name[name] for name in names]
        rng = np.random.default_rng(0)
        make = _any_floats if self.kind == "real" else _exact_values
        self.leaves = [make(type_, rng) for type_ in parameter_types(self.functions[0])]

    @cached_property
    def shader(self):
        """WGSL for an adapter: as it was written, where the adapter understands it."""
        return print_wgsl(self.module) if self.kind == "real" else self.source

    @cached_property
    def with_entry(self):
        """The module with its entry point, for kernels."""
        text = print_wgsl(self.module) + entry_point(self.functions, one_input=True)
        module = parse(text, "fuzz.wgsl")
        check(module)
        return module

    @property
    def parameters(self):
        """The inputs of real programs by name."""
        return dict(zip(real_programs.PARAMETERS, self.leaves, strict=True))

    @cached_property
    def are_moderate(self):
        """Where no input of real programs is very large or small."""
        sizes = np.abs(np.stack([self.parameters[name].astype(np.float64) for name in "abc"]))
        return ((sizes == 0.0) | ((sizes > 2.0**-30) & (sizes < 2.0**30))).all(axis=0)

    def nested(self, leaves):
        """The leaves of the results, in lists for each program."""
        result = iter(leaves)
        return [[next(result) for _ in result_leaves([function])] for function in self.functions]


def _exact_values(type_, rng):
    if type_ == "bool":
        return rng.random(SAMPLES) < 0.5
    if type_ == "f32":
        return (rng.integers(-32, 33, SAMPLES) / 4).astype(np.float32)
    bits = rng.integers(0, 2**32, SAMPLES, dtype=np.uint32) >> rng.integers(0, 32, SAMPLES, dtype=np.uint32)
    edges = [
        0,
        1,
        31,
        32,
        2**31 - 1,
        2**31,
        2**32 - 1,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x7F7FFFFF,
        0x00000FFF,
        0x3F800000,
    ]
    signed = np.where(rng.random(SAMPLES) < 0.4, 0 - bits, bits)
    return np.where(rng.random(SAMPLES) < 0.3, rng.choice(np.array(edges, np.uint32), SAMPLES), signed).view(
        DTYPES[type_]
    )


def _any_floats(type_, rng):
    """Most of ordinary size, some of any, and edges."""
    if type_ == "i32":
        return rng.integers(-8, 9, SAMPLES, dtype=np.int32)
    values = (rng.normal(size=SAMPLES) * 2.0 ** rng.integers(-8, 8, SAMPLES)).astype(np.float32)
    any_bits = rng.integers(0, 2**32, SAMPLES, dtype=np.uint32).view(np.float32)
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        2.0**-126,
        3.4028235e38,
        -3.4028235e38,
        1e-40,
        -1e-45,
        0.5,
        2.5,
    ]
    edges = rng.choice(np.array(edges, np.float32), SAMPLES)
    return np.select([rng.random(SAMPLES) < 0.1, rng.random(SAMPLES) < 0.25], [any_bits, edges], values)


# Each takes a batch and returns the leaves of the results of each program.


def on_numpy(batch, dialect=NUMPY):
    """The printed NumPy."""
    namespace = compile_python(print_python(batch.module, dialect), "fuzz")
    result = [evaluate(namespace, function, batch.leaves) for function in batch.functions]
    return [[np.broadcast_to(leaf, SAMPLES) for leaf in leaves] for leaves in result]


def on_jax(batch, **options):
    """The printed jax.numpy, compiled by XLA."""
    namespace = compile_python(print_python(batch.module, JAX), "fuzz")
    count = len(batch.functions)
    result = evaluate_in_jax([namespace] * count, batch.functions, [batch.leaves] * count, **options)
    return [[np.broadcast_to(leaf, SAMPLES) for leaf in leaves] for leaves in result]


def on_quick_jax(batch):
    """Run a batch by JAX, compiled in a quarter of the time, as the device compiles small commands."""
    from optirs_web.native_backends.xla.programs import quick_options

    return on_jax(batch, **quick_options())


def on_numba(batch):
    """The printed Python, compiled by Numba, sample by sample."""
    import numba

    namespace = compile_python(print_python(batch.module, NUMBA), "fuzz")
    return [_with_numba(numba, namespace, function, batch.leaves) for function in batch.functions]


def _with_numba(numba, namespace, function, leaves):
    call = numba.njit(error_model="numpy")(namespace[python_name(function.name)].py_func)
    rows = []
    for sample in zip(*leaves, strict=True):
        inputs = iter(sample)
        rows.append(flat(function.return_type, call(*(nested(p.type, inputs, namespace) for p in function.parameters))))
    types = result_leaves([function])
    return [np.array(values, DTYPES[type_.name]) for values, type_ in zip(zip(*rows, strict=True), types, strict=True)]


def on_wgpu(batch):
    """WGSL on the first Vulkan adapter."""
    return batch.nested(run_on_gpu(vulkan_device(), batch.shader, batch.functions, batch.leaves, one_input=True))


def on_opencl(batch):
    """The printed OpenCL C on the first device."""
    return _on_c(batch, c_targets.on_opencl)


def on_emulated_cuda(batch):
    """The printed CUDA C++, by the host's compiler."""
    return _on_c(batch, c_targets.on_emulated_cuda)


def _on_c(batch, run):
    types = result_leaves(batch.functions)
    arrays = {"inputs": words(batch.leaves), "outputs": np.zeros(len(types) * SAMPLES, np.uint32)}
    (result,) = run([c_targets.Job(batch.with_entry, arrays, groups=(SAMPLES // WORKGROUP, 1, 1))])
    return batch.nested(typed(result["outputs"], types, SAMPLES))


TARGETS = {
    "cpu": on_numpy, "vulkan": on_wgpu, "opencl": on_opencl, "xla": on_jax, "quick-xla": on_quick_jax,
    "cuda": on_emulated_cuda,
    "numba": on_numba,
}  # fmt: skip
SHADERS = ("vulkan", "opencl", "cuda")
"""Those that kernels run on; the array targets have library calls in their place."""


def targets_of(kind, targets):
    """Those of `targets` that programs of a kind run on."""
    return [target for target in targets if kind != "kernel" or target in SHADERS]


def allowed_on(target, program, batch):
    """The intervals of a real program's results."""
    with regrouping() if target == "vulkan" else nullcontext():
        return program.expected(batch.parameters)


def wrong_samples(batch, target, results, reference):
    """For each program and leaf, where the results of a target are wrong.

    Args:
        reference: the results that those of exact programs have to be.
    """
    if batch.kind == "real":
        is_adapter = target == "vulkan"
        for program, leaves in zip(batch.programs, results, strict=True):
            allowed = allowed_on(target, program, batch)
            # Regrouped products may overflow where others do not. XLA computes a / b / c as a / (b c).
            may_regroup = is_adapter or (target.endswith("xla") and program.text.count("/") > 1)
            judged = batch.are_moderate if may_regroup else True
            pairs = zip(allowed, leaves, strict=True)
            yield [outside(interval, leaf, may_assume_finite=is_adapter) & judged for interval, leaf in pairs]
        return
    for got, expected in zip(results, reference, strict=True):
        yield [_different(a, b) for a, b in zip(got, expected, strict=True)]


def _different(got, wanted):
    assert got.dtype == wanted.dtype, f"a result is {got.dtype}, not {wanted.dtype}"
    return (got != wanted) & ~((got != got) & (wanted != wanted))
