"""Steps on `xla` beside plain JAX: bytes that XLA's program accesses, its gathers and scatters, and times.

    .venv/bin/python benchmarks/xla_steps.py

Needs JAX. Optimizers step over 200 tensors of seven shapes, gradients given; the GPT is that of `examples/gpt.py`.
"""

import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import optirs_web as ow
from optirs_web.native_backends.xla.programs import program_function
from optirs_web.wgsl.jax_dialect import XLA_OPTIONS

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import gpt

COUNTS = {
    (256,): 60, (256, 256): 30, (64, 64): 40, (1024,): 30, (128, 512): 20, (10, 7): 10, (16, 8, 3, 3): 10,
}  # fmt: skip
ROUNDS = 15
CHARACTERS = 64


def described(compiled: Any) -> tuple[float, int, int]:
    """Return the megabytes that a compiled program accesses, as XLA estimates them, its gathers and its scatters."""
    text = compiled.as_text()
    gathers, scatters = (len(re.findall(rf" {kind}\(", text)) for kind in ("gather", "scatter"))
    return compiled.cost_analysis()["bytes accessed"] / 1e6, gathers, scatters


def of_program(program: Any) -> tuple[float, int, int]:
    """Return `described` of a recorded step."""
    function, handles, count = program_function(program.recorded.commands)
    arrays = [program.device.backend.arrays_of(handle) for handle in handles]
    jitted = jax.jit(function, donate_argnums=(0,), compiler_options=dict(XLA_OPTIONS))
    return described(jitted.lower(tuple(arrays[:count]), tuple(arrays[count:]), None).compile())


def times_of(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the median of each call's times in milliseconds, all in turn."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, own in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [1e3 * statistics.median(own[2:]) for own in times]


def adamw(params: Any, state: Any, grads: Any, lr: float) -> Any:
    """Return parameters and state after a step of AdamW in plain JAX."""
    means, squares, step = state
    step = step + 1
    first, second = 1 - 0.9**step, 1 - 0.999**step
    means = jax.tree.map(lambda m, g: m + 0.1 * (g - m), means, grads)
    squares = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, squares, grads)
    new = jax.tree.map(
        lambda p, m, v: p - lr * (0.01 * p + m / first / (jnp.sqrt(v / second) + 1e-8)), params, means, squares
    )
    return new, (means, squares, step)


def state_of(params: Any) -> Any:
    """Return the state of `adamw` before its first step."""
    return jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params), jnp.float32(0)


def replayed(step: Any, held: list[Any], *others: Any) -> Callable[[], None]:
    """Return a call that replaces what is held by the first results of a compiled function, and waits."""

    def call() -> None:
        results = jax.block_until_ready(step(*held, *others))
        held[:] = results[: len(held)]

    return call


def optimizer_steps(device: ow.Device) -> None:
    """Print rows of optimizers over many tensors, and one of plain JAX over a stack for each shape."""
    random = np.random.default_rng(0)
    shapes = [shape for shape, count in COUNTS.items() for _ in range(count)]
    for name in ("AdamW", "LAMB", "Adafactor"):
        params = [ow.Parameter(random.standard_normal(shape, np.float32), device=device) for shape in shapes]
        for param in params:
            param.grad = ow.tensor(random.standard_normal(param.shape, np.float32), device=device)
        optimizer = getattr(ow.optim, name)(params)
        with device.record() as program:
            optimizer.step()

        def replay(program: Any = program) -> None:
            device.replay(program)
            device.synchronize()

        rows, calls = [(f"{name}, 200 tensors", of_program(program))], [replay]
        if name == "AdamW":
            stacks, grads = (
                [jnp.asarray(random.standard_normal((count, *shape), np.float32)) for shape, count in COUNTS.items()]
                for _ in range(2)
            )
            held = [stacks, state_of(stacks)]
            step = jax.jit(lambda p, s, g: adamw(p, s, g, 1e-3), donate_argnums=(0, 1))
            rows.append(("    plain JAX, stacked by shape", described(step.lower(*held, grads).compile())))
            calls.append(replayed(step, held, grads))
        show(rows, calls)


def normalized(x: Any, p: dict[str, Any], name: str) -> Any:
    """Return a layer normalization."""
    centered = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return centered * scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def linear(x: Any, p: dict[str, Any], weight: str, bias: str) -> Any:
    """Return a linear layer's result."""
    return x @ p[weight].T + p[bias]


def loss_of(p: dict[str, Any], codes: Any, following: Any) -> Any:
    """Return the loss of the GPT in plain JAX."""
    batch, length = codes.shape
    width = gpt.WIDTH // gpt.HEADS
    x = p["character.weight"][codes] + p["position.weight"]
    for number in range(gpt.LAYERS):
        of = f"blocks.{number}"
        y = linear(normalized(x, p, f"{of}.norm1"), p, f"{of}.attention.in_proj_weight", f"{of}.attention.in_proj_bias")
        q, k, v = (part.reshape(batch, length, -1, width).swapaxes(1, 2) for part in jnp.split(y, 3, -1))
        scores = jnp.where(np.tri(length, dtype=bool), q @ k.swapaxes(2, 3) / math.sqrt(width), -jnp.inf)
        y = (jax.nn.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(batch, length, gpt.WIDTH)
        x = x + linear(y, p, f"{of}.attention.out_proj.weight", f"{of}.attention.out_proj.bias")
        y = linear(normalized(x, p, f"{of}.norm2"), p, f"{of}.network.0.weight", f"{of}.network.0.bias")
        x = x + linear(jax.nn.gelu(y), p, f"{of}.network.2.weight", f"{of}.network.2.bias")
    logits = linear(normalized(x, p, "norm"), p, "head.weight", "head.bias")
    chosen = jnp.take_along_axis(logits, following[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def gpt_step(device: ow.Device) -> None:
    """Print rows of the training step of the GPT."""
    model = gpt.GPT(CHARACTERS, device=device)
    params = {name: jnp.asarray(param.numpy()) for name, param in model.named_parameters()}
    codes = np.random.default_rng(0).integers(0, CHARACTERS, (gpt.BATCH, gpt.BLOCK)).astype(np.int32)
    batch = [ow.tensor(values, device=device) for values in (codes, np.roll(codes, -1, 1))]
    step = gpt.train_step(model, ow.optim.AdamW(model.parameters(), lr=1e-3))
    step(*batch)

    def ours() -> None:
        step(*batch)
        device.synchronize()

    def trained(p: Any, state: Any, *batch: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(p, *batch)
        return *adamw(p, state, grads, 1e-3), loss

    plain, held = jax.jit(trained, donate_argnums=(0, 1)), [params, state_of(params)]
    others = [jnp.asarray(values.numpy()) for values in batch]
    rows = [
        ("the GPT's training step", of_program(step.recorded_on(device, batch).program)),
        ("    plain JAX", described(plain.lower(*held, *others).compile())),
    ]
    show(rows, [ours, replayed(plain, held, *others)])


def show(rows: Sequence[tuple[str, tuple[float, int, int]]], calls: Sequence[Callable[[], Any]]) -> None:
    """Print rows, with the times of the calls."""
    for (name, (megabytes, gathers, scatters)), milliseconds in zip(rows, times_of(calls), strict=True):
        print(f"{name:33}{milliseconds:8.2f} ms {megabytes:9.1f} MB{gathers:9}{scatters:10}")


if __name__ == "__main__":
    print(f"{'':33}{'time':>11} {'accessed':>12}{'gathers':>9}{'scatters':>10}")
    on = ow.device("xla")
    optimizer_steps(on)
    gpt_step(on)
