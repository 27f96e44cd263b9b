"""Compare `placement("auto")` with the better of `placement("cpu")` and `placement("gpu")`.

Each call of a case makes tensors of arrays, as of a batch, computes, and waits for the result on the device where it is
stored. Weights are tensors on the processor. The three policies alternate in each round, so that other load on the
machine affects all alike; the figure is the median ratio of "auto" to the better one in the same round. On a machine
with few cores set OPENBLAS_NUM_THREADS=1, or threads of products on the processor mostly wait for each other.
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
    """Return a call of ten light map functions."""
    array = np.ones(size, np.float32)

    def run():
        x = ow.tensor(array, device="cpu")
        for _ in range(5):
            x = x * 0.5 + 1.0
        return x

    return run


def heavy_chain(size):
    """Return a call of six map functions of about thirty operations each."""
    array = np.ones(size, np.float32)

    def run():
        x = ow.tensor(array, device="cpu")
        for _ in range(3):
            x = x.tanh().exp()
        return x

    return run


def reductions(size):
    """Return a call that computes sums and means along both axes of a matrix, which is made once."""
    x = ow.tensor(np.ones((size, 256), np.float32), device="cpu")
    return lambda: x.sum(axis=0).mean() + x.mean(axis=1).sum()


def products(size):
    """Return a call of three products with weights."""
    array = np.ones((size, size), np.float32) / size
    weights = [ow.tensor(array, device="cpu") for _ in range(3)]

    def run():
        x = ow.tensor(array, device="cpu")
        for weight in weights:
            x = x @ weight
        return x

    return run


def mixed(size):
    """Return a call of products alternating with heavy map functions, then a reduction."""
    array = np.ones((size, size), np.float32) / size
    weights = [ow.tensor(array, device="cpu") for _ in range(2)]

    def run():
        x = ow.tensor(array, device="cpu")
        for weight in weights:
            x = ((x @ weight).tanh() + 1.0).exp()
        return x.sum()

    return run


def training_step(width):
    """Return the AdamW training step of a perceptron of three layers, and a batch of 128."""
    model = ow.nn.Sequential(
        *(ow.nn.Linear(64, width, device="cpu"), ow.nn.Tanh()),
        *(ow.nn.Linear(width, width, device="cpu"), ow.nn.Tanh()),
        ow.nn.Linear(width, 10, device="cpu"),
    )
    optimizer = ow.optim.AdamW(model.parameters())
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(128, 64)).astype(np.float32), rng.integers(0, 10, 128).astype(np.int32)

    def step(x, y):
        optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, x, y


def training(width):
    """Return a call of the training step that dispatches operation by operation."""
    step, x, y = training_step(width)
    return lambda: step(ow.tensor(x, device="cpu"), ow.tensor(y, device="cpu"))


def compiled_training(width):
    """Return a call of the compiled training step."""
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
        ow.placement(None)  # the call has set the policy globally; it should hold in blocks only
        self.run = make(size)
        with self.policy:
            for _ in range(warm):  # "auto" tries both devices meanwhile
                self.wait(self.run())

    def wait(self, result):
        """Wait for the device on which a result is stored, and return its name."""
        result.device.synchronize()
        return result.device.name

    def take(self):
        """Compute, and wait for the result."""
        self.where = self.wait(self.run())

    def seconds(self, repeats):
        """Return the mean seconds of `repeats` calls."""
        with self.policy:
            return timing.seconds(self.take, repeats)


def compare(make, size, gpu, budget, warm):
    """Time a case under all policies; after nine rounds, one that is far behind is left out.

    Returns:
        By policy, the seconds of a call in each round; and the device on which "auto" computed last.
    """
    sides = {policy: Side(policy, make, size, gpu, warm) for policy in POLICIES}
    repeats = max(1, math.ceil(0.0005 / min(side.seconds(1) for side in sides.values())))
    seconds = {policy: [] for policy in POLICIES}
    taking_part = list(POLICIES)
    until = time.perf_counter() + budget
    while len(seconds["auto"]) < _FEWEST_ROUNDS or time.perf_counter() < until:
        random.shuffle(taking_part)  # each call depends on the caches that the one before has left
        for policy in taking_part:
            seconds[policy].append(sides[policy].seconds(repeats))
        if len(seconds["auto"]) == _FEWEST_ROUNDS:
            enough = _FAR_BEHIND * min(min(seconds["cpu"]), min(seconds["gpu"]))
            taking_part = [policy for policy in POLICIES if policy == "auto" or min(seconds[policy]) < enough]
    return seconds, sides["auto"].where


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", help="an argument of ow.device; by default the first GPU")
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
            cpu, gpu, auto = (1e3 * statistics.median(seconds[policy]) for policy in POLICIES)
            to_the_end = [policy for policy in ("cpu", "gpu") if len(seconds[policy]) == len(seconds["auto"])]
            better = seconds[min(to_the_end, key=lambda policy: statistics.median(seconds[policy]))]
            ratio = statistics.median(timing.ratios(seconds["auto"], better))
            worst = max(worst, ratio)
            print(
                f"{case:19}{size:9,}{cpu:10.3f}{gpu:10.3f}{auto:10.3f}{ratio:13.3f}{len(better):8}  {where}", flush=True
            )
    print(f"worst: {worst:.3f}")
    if arguments.check and worst > LIMIT:
        sys.exit(f"auto takes {worst:.3f} times what the better device takes; {LIMIT} is the limit")


if __name__ == "__main__":
    main()
