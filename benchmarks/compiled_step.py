"""Time a training step as called, compiled, and compiled with its loss read each time, in alternating rounds.

    python benchmarks/compiled_step.py [DEVICE ...]

The models are a perceptron that takes more time on the host than in kernels, and one that takes more in kernels. On a
busy machine read the ratios, not the times.
"""

import statistics
import sys

import numpy as np

import optirs_web as ow
from optirs_web import nn
from optirs_web.benchmarks.timing import Side, race, ratios

SIZES = {"64-64-10, 32 examples": (64, 32), "64-512-10, 256 examples": (512, 256)}
ROUNDS = 7


def steps(device, width, examples):
    """Return the functions that run a step, by name."""
    ow.manual_seed(0)
    rng = np.random.default_rng(0)
    x = ow.tensor(rng.random((examples, 64), dtype=np.float32), device=device)
    y = ow.tensor(rng.integers(0, 10, examples, dtype=np.int32), device=device)
    layers = nn.Linear(64, width, device=device), nn.GELU(), nn.Linear(width, 10, device=device)
    model = nn.Sequential(*layers)
    optimizer = ow.optim.AdamW(model.parameters(), lr=1e-4)

    def step(x, y):
        optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled = ow.compile(step, device=device)
    return {
        "as called": lambda: step(x, y),
        "compiled": lambda: compiled(x, y),
        "compiled, and its loss read": lambda: compiled(x, y).item(),
    }


def main(*names):
    for device in map(ow.device, names or ("cpu", "vulkan")):
        for size, (width, examples) in SIZES.items():
            calls = steps(device, width, examples)
            times = race({name: Side(call, device.synchronize) for name, call in calls.items()}, ROUNDS, "as called")
            for name, seconds in times.items():
                ratio = statistics.median(ratios(seconds, times["as called"]))
                print(f"{device.name}, {size}: {name}: {1e3 * statistics.median(seconds):.2f} ms, {ratio:.2f} times")


if __name__ == "__main__":
    main(*sys.argv[1:])
