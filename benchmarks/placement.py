"""`placement("auto")` beside the better of `placement("cpu")` and `placement("gpu")`. Ratios are what counts.

A case is a function of arrays on the processor, as a batch is: each call makes tensors of them, computes, and waits for
the result where it lies. Weights are tensors on the processor that stay. The three policies take turns, round by round,
so that what else the machine does meets all alike. What counts is the median of "auto" over the better one in the same
round; with `--check` more than 1.05 fails. On a machine with few cores set OPENBLAS_NUM_THREADS=1, or products on the
processor mostly wait for each other.
"""

import argparse
import math
import random
import statistics
import sys
import time

import numpy as np

import optirs_web as ow
from optirs_web.benchmarks import timing

POLICIES = ("cpu", "gpu", "auto")
LIMIT = 1.05
_FEWEST_ROUNDS = 9
_FAR_BEHIND = 1.5


def map_chain(size):
    """Ten light map functions."""
    array = np.ones(size, np.float32)

    def run():
        x = ow.tensor(array, device="cpu")
        for _ in range(5):
            x = x * 0.5 + 1.0
        return x

    return run


def heavy_chain(size):
    """Six map functions of some thirty operations each."""
    array = np.ones(size, np.float32)

    def run():
        x = ow.tensor(array, device="cpu")
        for _ in range(3):
            x = x.tanh().exp()
        return x

    return run


def reductions(size):
    """Sums and means along both axes of a matrix that stays."""
    x = ow.tensor(np.ones((size, 256), np.float32), device="cpu")
    return lambda: x.sum(axis=0).mean() + x.mean(axis=1).sum()


def products(size):
    """Three products with weights."""
    array = np.ones((size, size), np.float32) / size
    weights = [ow.tensor(array, device="cpu") for _ in range(3)]

    def run():
        x = ow.tensor(array, device="cpu")
        for one in weights:
            x = x @ one
        return x

    return run


def mixed(size):
    """Products, heavy map functions and a reduction in turn."""
    array = np.ones((size, size), np.float32) / size
    weights = [ow.tensor(array, device="cpu") for _ in range(2)]

    def run():
        x = ow.tensor(array, device="cpu")
        for one in weights:
            x = ((x @ one).tanh() + 1.0).exp()
        return x.sum()

    return run


def training_step(width):
    """That of a perceptron of three layers, with AdamW, and a batch of 128."""
    model = ow.nn.Sequential(
        *(ow.nn.Linear(64, width, device="cpu"), ow.nn.Tanh()),
        *(ow.nn.Linear(width, width, device="cpu"), ow.nn.Tanh()),
        ow.nn.Linear(width, 10, device="cpu"),
    )
    optimizer = ow.optim.AdamW(model.parameters())
    numbers = np.random.default_rng(0)
    x, y = numbers.normal(size=(128, 64)).astype(np.float32), numbers.integers(0, 10, 128).astype(np.int32)

    def step(x, y):
        optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, x, y


def training(width):
    """A training step, operation by operation."""
    step, x, y = training_step(width)
    return lambda: step(ow.tensor(x, device="cpu"), ow.tensor(y, device="cpu"))


def compiled_training(width):
    """The same, compiled."""
    step, x, y = training_step(width)
    compiled = ow.compile(step)
    return lambda: compiled(x, y)


CASES = {
    "map chain": (map_chain, (1 << 8, 1 << 14, 1 << 18, 1 << 21)),
    "heavy map chain": (heavy_chain, (1 << 8, 1 << 12, 1 << 14, 1 << 18, 1 << 20)),
    "reductions": (reductions, (4, 256, 4096)),
    "products": (products, (16, 64, 256)),
    "mixed": (mixed, (16, 64, 256)),
    "training": (training, (16, 128)),
    "compiled training": (compiled_training, (16, 128)),
}


class Side:
    """A case under one policy."""

    def __init__(self, policy, make, size, gpu, warm):
        self.policy = ow.placement(policy, gpu=gpu)
        ow.placement(None)
        self.run = make(size)
        with self.policy:
            for _ in range(warm):  # "auto" tries both devices meanwhile
                self.wait(self.run())

    def wait(self, result):
        """Wait where the result lies, and say where."""
        result.device.synchronize()
        return result.device.name

    def take(self):
        """Compute, and wait for the result."""
        self.where = self.wait(self.run())

    def seconds(self, repeats):
        """Of each of so many calls."""
        with self.policy:
            return timing.seconds(self.take, repeats)


def compare(make, size, gpu, budget, warm):
    """Seconds of each policy in each round, and where "auto" ended. What is far behind is left out after a while."""
    sides = {policy: Side(policy, make, size, gpu, warm) for policy in POLICIES}
    repeats = max(1, math.ceil(0.0005 / min(side.seconds(1) for side in sides.values())))
    seconds = {policy: [] for policy in POLICIES}
    taking_part = list(POLICIES)
    until = time.perf_counter() + budget
    while len(seconds["auto"]) < _FEWEST_ROUNDS or time.perf_counter() < until:
        random.shuffle(taking_part)  # what ran before leaves its traces in caches
        for policy in taking_part:
            seconds[policy].append(sides[policy].seconds(repeats))
        if len(seconds["auto"]) == _FEWEST_ROUNDS:
            enough = _FAR_BEHIND * min(min(seconds["cpu"]), min(seconds["gpu"]))
            taking_part = [policy for policy in POLICIES if policy == "auto" or min(seconds[policy]) < enough]
    return seconds, sides["auto"].where


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", help="what ow.device takes; by default the first there is")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each case, at least; short rounds are many")
    parser.add_argument("--case", action="append", choices=list(CASES), help="may be repeated; all by default")
    parser.add_argument("--check", action="store_true", help=f"fail where auto takes more than {LIMIT} of the better")
    arguments = parser.parse_args()
    worst = 0.0
    print(f"{'case':19}{'size':>9}{'cpu ms':>10}{'gpu ms':>10}{'auto ms':>10}{'auto/better':>13}{'rounds':>8}  ends on")
    for case in arguments.case or CASES:
        make, sizes = CASES[case]
        for size in sizes:
            warm = 150 if make is compiled_training else 60
            seconds, where = compare(make, size, arguments.gpu, arguments.seconds, warm)
            cpu, gpu, auto = (1e3 * statistics.median(seconds[one]) for one in POLICIES)
            better = seconds["cpu" if cpu < gpu else "gpu"]
            ratio = statistics.median(its / of_better for its, of_better in zip(seconds["auto"], better, strict=True))
            worst = max(worst, ratio)
            print(
                f"{case:19}{size:9,}{cpu:10.3f}{gpu:10.3f}{auto:10.3f}{ratio:13.3f}{len(better):8}  {where}", flush=True
            )
    print(f"worst: {worst:.3f}")
    if arguments.check and worst > LIMIT:
        sys.exit(f"auto takes {worst:.3f} times what the better device takes; {LIMIT} is the limit")


if __name__ == "__main__":
    main()
