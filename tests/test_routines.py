"""The declared interfaces of routines, by which devices without shaders bind them."""

import os
import subprocess
import sys

import pytest

from optirs_web.runtime.kernels import cooperative, interface_of
from optirs_web.runtime.routines import INTERFACES

OVERRIDES = {"IN_REGISTERS": True, "OWN_ROWS": 8, "OWN_TILE": 64, "column_tiles": 2}


@pytest.mark.parametrize("name", INTERFACES)
def test_the_declared_interface_is_that_of_the_shader(name):
    declared = INTERFACES[name]
    for overrides in ({}, *({override: OVERRIDES[override]} for override in sorted(declared.overrides))):
        kernel = cooperative(name, **overrides)
        actual = interface_of(kernel.module)
        assert (kernel.bindings, kernel.parameters) == (declared.bindings, declared.parameters)
        assert (actual.bindings, actual.parameters) == (declared.bindings, declared.parameters)


def test_other_overrides_are_read_from_the_shader():
    kernel = cooperative("matmul", QUADS=True, B_STAGING=1)
    assert [binding.name for binding in kernel.bindings] == ["a", "b_vectors", "c"]


PROGRAM = """
import optirs_web as ow
from optirs_web.wgsl import linker
own = linker._load_from_package
read = []
linker._load_from_package = lambda path: read.append(path) or own(path)
w = ow.Parameter([[1.0, 2.0], [3.0, 4.0]], device="cpu")
query = ow.tensor([[[1.0, 2.0]]], device="cpu", requires_grad=True)

@ow.compile
def step(x):
    loss = (x @ w).relu().sum() + ow.ops.scaled_dot_product_attention(query, query, query).sum()
    loss.backward()
    return loss

step(ow.ones((3, 2), device="cpu")).item()
print([path for path in read if path[0] == "kernels"])
"""


def test_the_processor_reads_no_shader_of_a_routine():
    environment = {**os.environ, "OPTIRS_CPU": "numpy"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
