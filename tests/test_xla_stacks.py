"""Arenas on `xla`: an array for each shape, and one for the blocks of tensors of rare shapes."""

import json
import math
from functools import partial

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web.runtime.arena import Arena
from optirs_web.runtime.buffer import View
from optirs_web.wgsl.shell import BLOCK

FEW = [(4, 3), (300,), (4, 3), (2, 3, 5), (0, 2), (), (256, 2)]
MANY = [*FEW, *((rows, 40) for rows in range(8, 24)), (8, 16), (300, 300)]
"""More shapes than have a stack each: those of the fewest elements share one of blocks."""

WIDE = [*((rows, 300) for rows in range(2, 18)), (300,)]
"""A rare shape whose rows are longer than a block."""


@pytest.fixture
def device(xla):
    return xla


def values_of(shapes, seed):
    return [np.random.default_rng([seed, i]).standard_normal(shape, np.float32) for i, shape in enumerate(shapes)]


def contents(arena, seed=0):
    """Return random words for a buffer of an arena, with zeros between the tensors."""
    words = np.zeros(arena.blocks * BLOCK, np.float32)
    for first, values in zip(arena.firsts, values_of([(size,) for size in arena.sizes], seed), strict=True):
        words[first : first + values.size] = values
    return words


@pytest.mark.parametrize("shapes", [FEW, MANY, [(0, 3)]], ids=["few", "many", "empty"])
def test_tensors_of_one_shape_are_one_array_and_those_of_rare_shapes_share_one(device, shapes):
    arena = Arena(device, shapes)
    taken = [range(stack.first, stack.first + stack.tensors * stack.step) for stack in arena.stacks]
    assert [word for words in taken for word in words] == list(range(arena.blocks * BLOCK))
    assert len(arena.stacks) <= 18
    stacks = {stack.shape: stack for stack in arena.stacks}
    alike = [shape for shape in shapes if shape in stacks and shape != (BLOCK,)]
    for shape in alike:
        assert stacks[shape].tensors == shapes.count(shape)
    assert (300, 300) not in shapes or (300, 300) in alike
    if len(set(shapes)) <= 16:
        assert set(alike) == {shape for shape in shapes if math.prod(shape)}


@pytest.mark.parametrize("shapes", [FEW, MANY], ids=["few", "many"])
def test_any_part_of_an_arena_is_read_and_written(device, shapes):
    arena = Arena(device, shapes)
    expected, random = contents(arena), np.random.default_rng(1)
    device.write(View.whole(arena.params), expected.data)
    is_kept = np.zeros(expected.size, bool)
    for stack in arena.stacks:
        for first in stack.words[:: stack.step]:
            is_kept[first : first + stack.size] = True
    starts = [*arena.firsts, *(first + size for first, size in zip(arena.firsts, arena.sizes, strict=True))]
    for number in range(30):
        first, end = sorted({*random.choice(starts, 2).tolist(), *random.integers(0, expected.size, 2).tolist()})[:2]
        view = View(arena.params, 4 * first, 4 * (end - first))
        assert np.array_equal(np.frombuffer(device.read(view), np.float32), expected[first:end])
        written = random.standard_normal(end - first, np.float32)
        source = ow.tensor(written, device=device)
        if number % 3:
            device.copy(source.view, view)  # as a function of its own, or one of several
        else:
            device.write(view, written.data)
        expected[first:end] = np.where(is_kept[first:end], written, 0)
        copied = ow.zeros((end - first,), device=device)
        with device.record() as program:
            device.copy(view, copied.view)
            device.copy(copied.view, view)
        device.replay(program)
        assert np.array_equal(copied.numpy(), expected[first:end])
        assert np.array_equal(np.frombuffer(device.read(View.whole(arena.params)), np.float32), expected)


optim, transforms = ow.optim, ow.optim.transforms
OPTIMIZERS = {
    "adamw": optim.AdamW,
    "lamb": optim.LAMB,
    "adafactor": partial(optim.Adafactor, lr=0.01),
    "came": partial(optim.CAME, lr=0.01),
    "sm3": partial(optim.SM3, lr=0.01),
    "prodigy": optim.Prodigy,
    "rounded": partial(optim.AdamW, param_dtype="bfloat16"),
    "clipped": partial(optim.AdamW, transforms=[transforms.centralize(), transforms.adaptive_clip(0.02)]),
    "noisy": partial(optim.AdamW, transforms=[transforms.add_noise(0.1)]),
    "accumulated": partial(optim.AdamW, transforms=[transforms.accumulate(2)]),
}


def trained(name, shapes, device):
    """Return parameters after steps in two groups, of which one has other flags; one gradient is missing later."""
    params = [ow.Parameter(values, device=device) for values in values_of(shapes, 0)]
    flags = {"amsgrad": True} if name == "adamw" else {}
    optimizer = OPTIMIZERS[name]([{"params": params[:3]}, {"params": params[3:], **flags}])
    for step in range(1, 4):
        grads = [ow.tensor(values, device=device) for values in values_of(shapes, step)]
        optimizer.step(grads=[None if number == 1 and step > 1 else grad for number, grad in enumerate(grads)])
    return [param.numpy() for param in params]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("shapes", [FEW, MANY, WIDE], ids=["few", "many", "wide"])
def test_a_step_over_stacks_and_blocks_is_that_of_other_devices(device, name, shapes):
    actual, expected = (trained(name, shapes, on) for on in (device, ow.device("cpu")))
    for ours, theirs in zip(actual, expected, strict=True):
        assert np.allclose(ours, theirs, rtol=2e-6, atol=2e-6)


SHARDED = """
import json, os, re
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import optirs_web as ow
from optirs_web.native_backends.xla.programs import program_function

device = ow.device("xla")
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in [(64, 128)] * 3 + [(128, 64), (256,)]]
for param in params:
    param.grad = ow.ones(param.shape, device=device)
optimizer = getattr(ow.optim, os.environ["OPTIMIZER"])(params)
optimizer.step()
with device.record() as program:
    optimizer.step()
function, handles, count = program_function(program.recorded.commands)


def described(array):
    axes = {2: (None, ("x", "y")), 3: (None, "x", "y")}.get(array.ndim, ())
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


arrays = [jax.tree.map(described, device.backend.arrays_of(handle)) for handle in handles]
written, read = tuple(arrays[:count]), tuple(arrays[count:])
shardings = jax.tree.map(lambda array: array.sharding, written)
text = jax.jit(function, out_shardings=shardings).lower(written, read, None).compile().as_text()
kinds = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
print(json.dumps({kind: len(re.findall(f" {kind}(?:-start)?\\\\(", text)) for kind in kinds}))
"""


@pytest.mark.parametrize(("name", "reduced"), [("AdamW", 0), ("LAMB", 3)])
def test_a_step_over_sharded_tensors_moves_none_of_them(device, name, reduced):
    """On a mesh of 4 x 2 devices with every parameter, gradient and slot in parts, only norms are exchanged."""
    lines = run_python(SHARDED, OPTIMIZER=name, XLA_FLAGS="--xla_force_host_platform_device_count=8")
    counted = json.loads(lines[-1])
    assert counted.pop("all-reduce") == reduced
    assert not any(counted.values()), counted


def test_memory_that_is_let_go_while_work_is_collected_is_not_given_to_others(device):
    arena = Arena(device, FEW)
    nbytes = arena.params.nbytes
    before = device.memory_stats().live_bytes

    def work():
        nonlocal arena
        arena = None
        allocated = device.allocate(nbytes)  # takes back what was let go, which commands may still name
        device.copy(View.whole(allocated), View.whole(device.allocate(nbytes)))

    device.all_or_nothing(work)
    device.flush()
    device.trim()
    assert device.memory_stats().live_bytes == before - nbytes
