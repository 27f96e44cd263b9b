"""Programs that together make every kind of kernel: a few steps of each row of the tables that the tests compare.

They take a device and may read from it: on a `Recorder` what is read is what was written, or zero, so only those whose
names begin with "driven" go by it.
"""

from collections.abc import Callable, Iterator
from functools import partial

import gpt
import numerics
import numpy as np
import resnet
import test_averaging
import test_bfloat16_params
import test_fusion
import test_low_precision_families as low_precision
import test_native_float16
import test_projections
import test_sparse_optimizers
import test_sparse_transforms
import test_transformed_optimizers
import test_transforms
import vae
from operation_cases import CASES as OPERATIONS
from operation_values import is_real, make_sources
from optimizer_cases import CASES as OPTIMIZERS, DRIVEN_CASES, SPARSE_CASES, Problem
from optimizer_problems import make_problem
from schedule_cases import EDGES, OPTAX_NAMES, OPTIRS, TORCH
from wrapper_problems import CURVATURES, STARTS

import optirs_web as ow
from optirs_web.cli.optimizers import all_optimizers
from optirs_web.runtime.device import Device

__all__ = ["Program", "programs"]

Program = Callable[[Device], object]

_STEPS = 3
"""Of each optimizer: its first is often another kernel than the others."""
_DRIVEN_STEPS = 8
"""Of those around others, which do more every seventh at most."""
_HALVES = ("float16", "bfloat16")
_KINDS = (*_HALVES, "8bit")


def programs() -> Iterator[tuple[str, Program]]:
    """Each with its name."""
    for group in (_operations, _fused, _models, _optimizers, _driven, _low_precision, _transforms, _schedules, _others):
        for name, program in group():
            yield f"{group.__name__[1:]}: {name}", program


def _operations() -> Iterator[tuple[str, Program]]:
    """Each variant with first and second derivatives, and the first one over each type of 16 bits."""
    for case in OPERATIONS:
        for number, variant in enumerate(case.variants):
            yield f"{case.name}, {variant}", partial(_operation, case, number)
        for dtype in _HALVES:
            yield f"{case.name} in {dtype}", partial(_operation_of, case, dtype)


def _operation(case, number, device):
    variant = case.variants[number]
    sources = make_sources(case, variant)
    value = case.ours(*variant.walked([ow.tensor(source, device=device) for source in sources]))
    weights = np.ones(value.shape, np.float32)
    tangents = [np.ones_like(source) for source in sources if is_real(source)]
    numerics.operation(case.name, [(number, sources, weights, tangents)], device)


def _operation_of(case, dtype, device):
    variant = case.variants[0]
    sources = make_sources(case, variant)
    leaves = [ow.tensor(source, device=device, dtype=dtype if is_real(source) else None) for source in sources]
    for leaf, source in zip(leaves, sources, strict=True):
        leaf.requires_grad = is_real(source) and not case.why_not
    result = case.ours(*variant.walked(leaves))
    if result.requires_grad:
        result.float().sum().backward()


def _fused() -> Iterator[tuple[str, Program]]:
    for name, (function, shapes, _) in test_fusion.STEPS.items():
        yield name, partial(_compiled, function, shapes)


def _compiled(function, shapes, device):
    ow.compile(function, device=device)(*(ow.tensor(array, device=device) for array in test_fusion.arrays(*shapes)))


def _models() -> Iterator[tuple[str, Program]]:
    """Training steps of the examples, compiled; large ones too, which compute values again to save memory."""
    codes = np.arange(4000, dtype=np.int32) % 50
    digits = np.zeros((512, 64), np.float32), np.zeros(512, np.int32)
    small = {"characters": 50, "block": 16, "width": 16, "layers": 1, "heads": 2}
    large = {"characters": 50, "block": 64, "width": 128, "layers": 1, "heads": 4}
    for name, module, sizes, data, batch in (
        ("GPT", gpt, small, (codes,), 8),
        ("GPT", gpt, large, (codes,), 32),
        ("ResNet", resnet, {"channels": 4}, digits, 8),
        ("ResNet", resnet, {"channels": 16}, digits, 256),
        ("VAE", vae, {"hidden": 16, "latent": 4}, digits[:1], 8),
        ("VAE", vae, {"hidden": 512, "latent": 16}, digits[:1], 512),
    ):
        for dtype in ("float32", *_HALVES):
            yield f"{name} {sizes} in {dtype}", partial(_trained, module, name, sizes, data, batch, dtype)
    yield "large step", lambda device: numerics.large_step(*test_fusion.arrays((192, 64), (64, 192)), device)
    yield "a module", partial(numerics.module_training, np.zeros((24, 3), np.float32))
    for name, call in test_native_float16.CALLS.items():
        for dtype in _HALVES:
            yield f"{name} in {dtype}", partial(_called, call, dtype)


def _trained(module, model, sizes, data, batch, dtype, device):
    with ow.autocast(dtype if dtype in _HALVES else "bfloat16", enabled=dtype in _HALVES):
        numerics.example_losses(module.__name__, model, sizes, data, 2, batch, device)


def _called(call, dtype, device):
    call(ow.zeros((6, 6), device=device).astype(dtype))


def _optimizers() -> Iterator[tuple[str, Program]]:
    for case in OPTIMIZERS:
        yield case.name, partial(numerics.steps, case.name, *make_problem(case.shapes, _STEPS))
    for case in SPARSE_CASES:
        problem = test_sparse_optimizers.make_problem(case.shapes, _STEPS)
        yield case.name, partial(numerics.sparse_steps, case.name, *problem)


def _driven() -> Iterator[tuple[str, Program]]:
    """Optimizers that go by the values that they read, so these programs need a device that computes."""
    starts = [start.astype(np.float32) for start in STARTS]
    curvatures = [curvature.astype(np.float32) for curvature in CURVATURES]
    for case in DRIVEN_CASES:
        yield case.name, partial(_driven_by_values, case, starts, curvatures)


def _driven_by_values(case, starts, curvatures, device):
    ours = [ow.Parameter(start, device=device) for start in starts]
    problem = Problem(ours, [ow.tensor(curvature, device=device) for curvature in curvatures])
    case.run(problem, _DRIVEN_STEPS, **case.options)


def _low_precision() -> Iterator[tuple[str, Program]]:
    """State and parameters in fewer bits."""
    for kind in _KINDS:
        for make in (ow.optim.SGD, ow.optim.AdamW, ow.optim.LAMB, ow.optim.Lion, ow.optim.AdaBelief):
            options = {"state_dtype": kind, **({"momentum": 0.9} if make is ow.optim.SGD else {})}
            yield f"{make.__name__} with {kind}", partial(_stepped, make, options)
        for name in (*low_precision.OPTIMIZERS, *(low_precision.ROWS if kind in _HALVES else ())):
            yield f"{name} with {kind}", partial(_stepped_family, name, kind)
    for name in test_bfloat16_params.TAKING:
        make = all_optimizers()[name]
        for rounding in test_bfloat16_params.ROUNDINGS:
            for kind in ("float32", "8bit") if name == "AdamW" else ("float32",):
                options = {"param_dtype": "bfloat16", "rounding": rounding, "state_dtype": kind}
                yield f"{name} of bfloat16, {rounding}, {kind}", partial(_stepped, make, options)


def _stepped(make, options, device):
    shapes = test_bfloat16_params.SHAPES[: 1 if make.needs else 2]
    params, grads = make_problem(shapes, _STEPS)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = make(ours, **options)
    for step_grads in grads:
        optimizer.step(grads=step_grads)


def _stepped_family(name, kind, device):
    params, grads = low_precision.problem(name, 5)
    ours, optimizer = low_precision.made(name, params, device, kind)
    for step_grads in grads:
        low_precision.step(optimizer, ours, step_grads)


def _transforms() -> Iterator[tuple[str, Program]]:
    params, grads = make_problem(test_transforms.SHAPES, _STEPS)
    for name, specs in test_transforms.CASES.items():
        yield name, partial(numerics.transformed, specs, "SGD", {"lr": 0.5}, params, grads)
        options = {"lr": 0.5, "skip_nonfinite": True}
        yield f"{name}, checked", partial(numerics.transformed, specs, "AdamW", options, params, grads)
    for name in test_transformed_optimizers.TAKING:
        yield f"in front of {name}", partial(_transformed, name)
    for name, transforms in test_sparse_transforms.TRANSFORMS.items():
        for checked in (False, True):
            yield f"{name} of rows, {checked}", partial(_transformed_rows, transforms, checked)
    for specs in ([], [["clip_by_global_norm", {"max_norm": 1.0}]]):
        yield f"scaled {specs}", partial(_scaled, specs)


def _scaled(specs, device):
    params, grads = make_problem([(3,), (16, 65)], _STEPS)
    ours = [ow.Parameter(param, device=device) for param in params]
    transforms = [getattr(ow.optim.transforms, name)(**arguments) for name, arguments in specs]
    optimizer, scaler = ow.optim.AdamW(ours, transforms=transforms), ow.optim.GradScaler(device)
    for step_grads in grads:
        for param, grad in zip(ours, step_grads, strict=True):
            param.grad = scaler.scale(ow.tensor(grad, device=device))
        scaler.step(optimizer)
        scaler.update()


def _transformed(name, device):
    params, grads = make_problem([(16, 5), (7, 33)], 2)
    make = test_transformed_optimizers.T
    transforms = [
        make.clip_by_value(1.0),
        make.accumulate(2, "sum"),
        make.clip_by_norm(1.0),
        make.clip_by_global_norm(1.0),
    ]
    optimizer = getattr(ow.optim, name)([ow.Parameter(param, device=device) for param in params], transforms=transforms)
    for step_grads in grads:
        optimizer.step(grads=step_grads)


def _transformed_rows(transforms, checked, device):
    params = test_sparse_transforms.params_on(device)
    optimizer = ow.optim.SGD(params, lr=0.1, transforms=transforms(), skip_nonfinite=checked)
    takes_rows = transforms is not test_sparse_transforms.TRANSFORMS["none of rows"]
    for are_rows in test_sparse_transforms.KINDS.values():
        grads = test_sparse_transforms.gradients(device, 0)
        pairs = zip(grads, are_rows if takes_rows else (True, False, True), strict=True)
        optimizer.step(grads=[grad if is_sparse else grad.to_dense() for grad, is_sparse in pairs])


def _schedules() -> Iterator[tuple[str, Program]]:
    kinds = {case.name: case.optimizer for case in (*TORCH, *EDGES)}
    for name in (*kinds, *OPTAX_NAMES, *OPTIRS):
        yield name, partial(numerics.schedule, name, kinds.get(name, "SGD"), 1)
    yield "a plateau", _plateau


def _plateau(device):
    optimizer = ow.optim.SGD([ow.Parameter([1.0], device=device)], lr=0.1)
    scheduler = ow.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    for _ in range(2):
        scheduler.step(ow.ones((), device=device))


def _others() -> Iterator[tuple[str, Program]]:
    for name, (kind, arguments, _) in test_projections.CASES.items():
        yield name, partial(numerics.projected, kind, arguments, test_projections.make_values())
    for name, (kind, arguments, _) in test_averaging.CASES.items():
        yield name, partial(numerics.averages, kind, arguments, test_averaging.make_values(2))
    params, _ = make_problem([(3,), (16, 65)], 0)
    for norm in (1.0, 2.0, float("inf")):
        yield f"clipped by the {norm} norm", partial(numerics.clipped_grads, params, 1.0, norm, 0.1)
    yield "random numbers", partial(numerics.random, 0, 5)
    yield "types", _types


def _types(device):
    x = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    for dtype in ("float16", "bfloat16", "int32", "uint32", "bool"):
        (x.T.astype(dtype) == x.astype(dtype)).float().astype("int32")
