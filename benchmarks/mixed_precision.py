"""Compare training under autocast with float32: memory, bytes that kernels read and write, and losses.

    python benchmarks/mixed_precision.py [DEVICE]

A GPT block (`examples/gpt.py`) and a perceptron train for some steps from the same start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import optirs_web as ow

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import gpt

STEPS = 30


def perceptron(device: str) -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    """Return a perceptron of three layers, a batch of 512 examples, and the loss function."""
    nn = ow.nn
    model = nn.Sequential(
        nn.Linear(64, 256, device=device), nn.ReLU(), nn.Linear(256, 256, device=device), nn.ReLU(),
        nn.Linear(256, 10, device=device),
    )  # fmt: skip
    x = ow.randn((512, 64), device=device, seed=1)
    return model, (x, x[:, :10].argmax(1)), lambda model, x, labels: ow.cross_entropy(model(x), labels)


def transformer(device: str) -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    """Return a GPT of one block of width 128, a batch of 8 texts of 64 characters, and the loss function."""
    model = gpt.GPT(64, block=64, width=128, layers=1, heads=4, device=device)
    codes = (ow.rand((8, 65), device=device, seed=2) * 64.0).astype("int32")

    def loss(model: Any, codes: Any, following: Any) -> Any:
        logits = model(codes)
        return ow.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1))

    return model, (codes[:, :-1].contiguous(), codes[:, 1:].contiguous()), loss


class Measured(NamedTuple):
    """The measurements of a model.

    Attributes:
        saved: bytes that are kept from forward to backward.
        recorded: bytes of a recorded step's own memory.
        moved: bytes that its kernels read and write.
        first: the first loss.
        last: the last loss.
    """

    saved: int
    recorded: int
    moved: int
    first: float
    last: float


def measure(make: Callable[[str], Any], device: str, dtype: str) -> Measured:
    """Train with products of a type; "float32" is without autocast."""
    ow.manual_seed(0)
    model, batch, loss_of = make(device)
    optimizer = ow.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = ow.optim.GradScaler(device, enabled=dtype == "float16")
    opened = ow.device(device)

    def forward(*batch: Any) -> Any:
        with ow.autocast("bfloat16" if dtype == "float32" else dtype, enabled=dtype != "float32"):
            return loss_of(model, *batch)

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = forward(*batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    before = opened.memory_stats().asked_bytes
    loss = forward(*batch)
    kept_bytes = opened.memory_stats().asked_bytes - before
    del loss
    recorded = ow.compile(step, device=device)
    losses = [recorded(*batch).item() for _ in range(STEPS)]
    with ow.profile(opened) as profile:
        recorded(*batch).item()
    moved = sum(kernel.nbytes for kernel in profile.kernels)
    assert recorded.program is not None
    return Measured(kept_bytes, recorded.program.nbytes, moved, losses[0], losses[-1])


def main() -> None:
    """Print the table."""
    device = sys.argv[1] if len(sys.argv) > 1 else "vulkan"
    print(f"{ow.device(device)}; {STEPS} steps; bytes")
    print(f"{'':12} {'':8} {'kept for backward':>18} {'recorded step':>14} {'moved by it':>14}  loss")
    for make in (perceptron, transformer):
        for dtype in ("float32", "bfloat16", "float16"):
            measured = measure(make, device, dtype)
            nbytes = f"{measured.saved:18,} {measured.recorded:14,} {measured.moved:14,}"
            print(f"{make.__name__:12} {dtype:8} {nbytes}  {measured.first:.4f} to {measured.last:.4f}")


if __name__ == "__main__":
    main()
