"""NVIDIA's compiler takes what is printed for CUDA of every built-in function; see also `make verify-shaders`."""

from itertools import product

import pytest
from adapters.compilers import refused_by_nvidia
from named_kernels import FOLDERS, named_kernels

from optirs_web.errors import DeviceNotAvailableError, OptirsError, UnsupportedError
from optirs_web.ops.row_kernels import SOFTMAX
from optirs_web.runtime import nvrtc as nvidias
from optirs_web.runtime.form_kernels import form_kernel
from optirs_web.runtime.kernels import cooperative
from optirs_web.runtime.map_kernels import elementwise
from optirs_web.runtime.nvrtc import compile_cuda
from optirs_web.runtime.rule_kernels import UpdateKernel
from optirs_web.runtime.rules import Rule
from optirs_web.wgsl import check, parse
from optirs_web.wgsl.builtins import BUILTINS, needs_subgroups
from optirs_web.wgsl.print_c import KERNEL, print_c

ARCHITECTURES = ["sm_80", "sm_90", "sm_120"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_shader_prints_for_opencl(folder):
    texts = [print_c(kernel.module, "opencl") for _, kernel in named_kernels(folder)]
    assert len(texts) >= {"elementwise": 125, "kernels": 34, "optimizers": 160, "rows": 17}[folder]
    assert all(f" {KERNEL}(" in text for text in texts)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    "kernel",
    [
        form_kernel(SOFTMAX),
        cooperative("matmul"),
        cooperative("float16_conversions"),
        elementwise("gelu", "gelu", ("tensor",), 0),
        UpdateKernel.of(Rule("adam"), (("decoupled_weight_decay", True),)),
    ],
    ids=lambda one: one.name,
)
def test_machine_code_for_gpus_that_people_have(kernel, arch, nvrtc):
    cubin = compile_cuda(print_c(kernel.module, "cuda"), arch, "cubin")
    assert cubin.startswith(b"\x7fELF")
    assert KERNEL.encode() in cubin


# Every row of the table of built-in functions, over each of its types.

SHAPES = {"s": (0,), "v": (3,), "3": (3,)}  # vectors of other sizes are made of the same rows
ARGUMENTS = {"vec2f": "vec2f(f)", "vec4f": "vec4f(f)", "vec4i": "vec4i(i)", "vec4u": "vec4u(u)", "u32": "u"}
SCALARS = {"bool": "b", "i32": "i", "u32": "u", "f32": "f", "f16": "f16(f)"}


def typed(size, scalar, value):
    return f"vec{size}<{scalar}>({value})" if size else value


def calls():
    """One call of each built-in function for each of its types, but those that take addresses."""
    for name, signatures in BUILTINS.items():
        for signature in signatures:
            if any(kind.startswith("&") for kind in signature.parameters) or name.endswith("Barrier"):
                continue
            sizes = [size for shape in signature.shapes for size in SHAPES.get(shape, (0,))] or [0]
            scalars = [str(scalar) for scalar in signature.scalars if str(scalar) in SCALARS] or ["f32"]
            for size, scalar in product(sizes, scalars):
                values = {"T": typed(size, scalar, SCALARS[scalar]), "S": SCALARS[scalar], "lane": "3u", "bool": "b"}
                values |= {f"T:{other}": typed(size, other, SCALARS[other]) for other in ("i32", "bool")}
                arguments = (values.get(kind) or ARGUMENTS.get(kind) or SCALARS[kind] for kind in signature.parameters)
                yield name, f"{name}({', '.join(arguments)})"


def kernel_of(lines):
    """A checked module whose kernel computes all these values."""
    body = "\n".join(f"    let value_{number} = {line};" for number, line in enumerate(lines))
    module = parse(
        f"""enable f16;
        @group(0) @binding(0) var<storage, read_write> numbers: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) u: u32) {{
            let i = i32(u); let f = f32(u); let b = u == 1u;
        {body}
            numbers[u] = 1u;
        }}""",
        "builtins.wgsl",
    )
    check(module)
    return module


def test_every_built_in_function_compiles_over_each_of_its_types(nvrtc):
    actual = list(calls())
    assert {name for name, _ in actual} > {"fma", "subgroupAdd", "pack2x16float", "faceForward"}
    assert refused_by_nvidia({"builtins": print_c(kernel_of([call for _, call in actual]), "cuda")}) == {}


def test_every_built_in_function_prints_for_opencl():
    text = print_c(kernel_of([call for _, call in calls()]), "opencl")
    assert text.count("value_") == len(list(calls()))


def test_subgroups_are_whole_warps():
    text = "@compute @workgroup_size(48) fn main() { _ = subgroupAdd(1u); }"
    module = parse(text, "t.wgsl")
    check(module)
    with pytest.raises(UnsupportedError, match="a multiple of that, not 48"):
        print_c(module, "cuda")
    assert print_c(module, "opencl")
    assert needs_subgroups("subgroupAdd")


def test_what_the_compiler_says_is_said(nvrtc):
    with pytest.raises(OptirsError, match=r"(?s)refuses this.*expected a"):
        compile_cuda("int f( {}")
    with pytest.raises(UnsupportedError, match="does not know 'sm_1'; there are sm_75, sm_80"):
        compile_cuda("", "sm_1")


def test_without_its_packages_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(DeviceNotAvailableError, match=r"pip install 'optirs-web\[cuda\]'"):
        nvidias.compile_cuda("")
