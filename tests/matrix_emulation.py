"""Kernels by subgroup matrices on a device without them: WGSL in place of the extension's types and functions.

Matrices are loaded and stored at the offsets of the kernel. The elements of a sum are divided among the invocations of
a subgroup, whose number a test chooses. An element from beyond an array is NaN.
"""

import re
from contextlib import contextmanager
from dataclasses import replace

from optirs_web.runtime.kernels import Kernel
from optirs_web.wgsl.vocabulary import MATRIX_EXTENSION

__all__ = ["emulated", "multiplying_by_matrices"]

_TYPE = re.compile(r"subgroup_matrix_(left|right|result)<(\w+), (\w+), (\w+)>")
_LOAD = re.compile(rf"subgroupMatrixLoad<{_TYPE.pattern}, row_major>\(&(\w+), ")
_BUILTINS = re.compile(r"    @builtin\(subgroup_id\) (\w+): u32,\n    @builtin\(num_subgroups\) (\w+): u32,\n\) \{")

_FUNCTIONS = """
// A factor: where it begins in its tile, and its stride. Of a sum an invocation has every %(subgroup)dth element.
fn element_of_a(at: u32) -> f32 {
    return select(f32(a_tile[at]), bitcast<f32>(0x7fc00000u | (at & 1u)), at >= %(a_length)du);
}

fn element_of_b(at: u32) -> f32 {
    return select(f32(b_tile[at]), bitcast<f32>(0x7fc00000u | (at & 1u)), at >= %(b_length)du);
}

fn store_result(lane: u32, first: u32, sums: array<f32, %(own)d>, stride: u32) {
    var own = sums;
    for (var n = 0u; n < %(own)du; n++) {
        let element = lane %% %(subgroup)du + n * %(subgroup)du;
        if element < %(rows)du * %(columns)du {
            c_tile[first + element / %(columns)du * stride + element %% %(columns)du] = own[n];
        }
    }
}

fn multiply_accumulate(
    lane: u32, left: vec2<u32>, right: vec2<u32>, before: array<f32, %(own)d>,
) -> array<f32, %(own)d> {
    var sums = before;
    for (var n = 0u; n < %(own)du; n++) {
        let element = lane %% %(subgroup)du + n * %(subgroup)du;
        let a_at = left.x + element / %(columns)du %% %(rows)du * left.y;
        let b_at = right.x + element %% %(columns)du;
        for (var k = 0u; k < %(inner)du; k++) {
            sums[n] += element_of_a(a_at + k) * element_of_b(b_at + k * right.y);
        }
    }
    return sums;
}
"""


def emulated(text, subgroup):
    """Return the WGSL of a kernel with `shaders/lib/matrices.wgsl`, without the extension.

    Args:
        text: as Dawn is given it.
        subgroup: invocations of a subgroup.
    """
    constants = {name: int(value) for name, value in re.findall(r"const (\w+): u32 = (\d+)u;", text)}

    def value(word):
        return constants[word] if word in constants else int(word.removesuffix("u"))

    sizes = {kind: (value(columns), value(rows)) for kind, _, columns, rows in _TYPE.findall(text)}
    (inner, rows), (columns, _) = sizes["left"], sizes["right"]
    assert sizes == {"left": (inner, rows), "right": (columns, inner), "result": (columns, rows)}
    depth, padding = constants["DEPTH"], constants["PADDING"]
    lengths = {
        "a_length": constants["TILE_ROWS"] * (depth + padding),
        "b_length": depth * (constants["TILE_COLUMNS"] + padding),
    }
    text = re.sub(r"enable (chromium_\w+|subgroups);\n", "", text)
    text = _LOAD.sub("vec2<u32>(", text)
    text = re.sub(r"subgroupMatrixStore<row_major>\(&c_tile, ", "store_result(lane, ", text)
    text = text.replace("subgroupMatrixMultiplyAccumulate(", "multiply_accumulate(lane, ")
    own = -(-rows * columns // subgroup)
    text = _TYPE.sub(lambda match: f"array<f32, {own}>" if match[1] == "result" else "vec2<u32>", text)
    count = constants["INVOCATIONS"] // subgroup
    text, changed = _BUILTINS.subn(rf") {{\n    let \1 = lane / {subgroup}u;\n    let \2 = {count}u;", text)
    assert changed == 1
    assert "ubgroup_matrix" not in text
    assert "ubgroupMatrix" not in text
    return text + _FUNCTIONS % {
        "rows": rows, "columns": columns, "inner": inner, "own": own, "subgroup": subgroup, **lengths,
    }  # fmt: skip


class _Emulated(Kernel):
    """A kernel by subgroup matrices, without them."""

    def __init__(self, base, subgroup):
        self.base, self.subgroup = base, subgroup
        self.name, self.overwrites = base.name, base.overwrites

    @property
    def module(self):
        return self.base.module

    def wgsl(self, host="naga"):
        return emulated(self.base.wgsl("tint"), self.subgroup)


@contextmanager
def multiplying_by_matrices(device, shapes, largest_subgroup, subgroup):
    """Give a device kernels by subgroup matrices of these shapes; a list of those that it runs.

    Args:
        shapes: those that an adapter would have.
        largest_subgroup: that it would tell.
        subgroup: invocations of the subgroups in which the kernels run.
    """
    result, own = {}, device.capabilities

    def of_emulated(call):
        def with_emulated(kernel, *arguments):
            if kernel not in result:
                result[kernel] = _Emulated(kernel, subgroup) if MATRIX_EXTENSION in kernel.wgsl("tint") else kernel
            return call(result[kernel], *arguments)

        return with_emulated

    device.capabilities = replace(own, quads=False, matrices=tuple(shapes), largest_subgroup=largest_subgroup)
    for name in ("bind", "expect"):
        setattr(device.backend, name, of_emulated(getattr(device.backend, name)))
    ran = []
    try:
        yield ran
    finally:
        ran += [value.base for value in result.values() if isinstance(value, _Emulated)]
        device.capabilities = own
        del device.backend.bind, device.backend.expect
