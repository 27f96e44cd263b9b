"""One AdamW step beside a copy on the same device, and beside torch. Rounds are interleaved; ratios are what counts.

A step moves 28 bytes per parameter: parameter, two moments read and written, gradient read. It is timed as a compiled
step and, last, as a call of `step`. Where Numba is installed, `cpu` uses it from the first launch on, unless OPTIRS_CPU
says otherwise.
"""

import argparse
import os
import statistics
import time
from importlib.util import find_spec

import numpy as np
from timing import seconds

import optirs_web as ow
from optirs_web.runtime.buffer import View

CASES = {"1 x 16,777,216": [1 << 24], "200 x 1,024": [1024] * 200}
BYTES_PER_PARAMETER = 28
WARM_UP = 1.0  # seconds
PAUSE = 0.05  # in which the threads of what was timed before stop to wait for more


def timed(call, repeats, wait=None):
    time.sleep(PAUSE)
    return seconds(call, repeats, wait)


def our_step(device, sizes):
    """A replayed step, with gradients in place, what it asks of the device, and the step itself."""
    params = [ow.Parameter(np.ones(size, np.float32), device=device) for size in sizes]
    optimizer = ow.optim.AdamW(params)
    for one in params:
        one.grad = ow.ones(one.shape, device=device)
    step = ow.compile(lambda: optimizer.step(), device=device)
    start = time.perf_counter()
    while time.perf_counter() < start + WARM_UP:
        step()
        optimizer.step()
        device.synchronize()
    before = device.stats.copy()
    step()
    return step, device.stats - before, optimizer.step


def our_copy(device, nbytes):
    source, target = (View.whole(device.allocate_zeroed(nbytes)) for _ in range(2))

    def copy():
        device.copy(source, target)
        device.flush()

    return copy


def torch_step(sizes):
    try:
        import torch
    except ImportError:
        return None
    params = [torch.nn.Parameter(torch.ones(size)) for size in sizes]
    for one in params:
        one.grad = torch.ones_like(one)
    return torch.optim.AdamW(params, fused=True).step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", action="append", help="may be repeated; all that there are by default")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    if find_spec("numba"):
        os.environ.setdefault("OPTIRS_CPU", "numba")
    names = arguments.device or [one.label for one in ow.devices() if one.available and one.name != "gl"]
    head = f"{'device':10}{'tensors':18}{'min ms':>9}{'median':>9}{'GB/s':>8}{'of copy':>9}"
    print(f"{head}{'torch fused':>13}{'eager':>8}  counts")
    for name in names:
        device = ow.device(name)
        for case, sizes in CASES.items():
            report(device, case, sizes, arguments.rounds)


def report(device, case, sizes, rounds):
    step, counts, eager = our_step(device, sizes)
    copy, theirs = our_copy(device, 4 * sum(sizes)), torch_step(sizes)
    repeats = max(1, (1 << 22) // sum(sizes))
    times = {"ours": [], "eager": [], "copy": [], "torch": []}
    for _ in range(rounds):
        times["ours"].append(timed(step, repeats, device.synchronize))
        times["eager"].append(timed(eager, repeats, device.synchronize))
        times["copy"].append(timed(copy, repeats, device.synchronize))
        if theirs is not None:
            times["torch"].append(timed(theirs, repeats))
    best = min(times["ours"])
    rate = BYTES_PER_PARAMETER * sum(sizes) / best
    copy_rate = 8 * sum(sizes) / min(times["copy"])
    theirs = min(times["torch"], default=None)
    versus = f"{best / theirs:12.2f}x{min(times['eager']) / theirs:7.2f}x" if theirs else f"{'-':>13}{'-':>8}"
    print(
        f"{device.name:10}{case:18}{1e3 * best:9.3f}{1e3 * statistics.median(times['ours']):9.3f}{rate / 1e9:8.2f}"
        f"{rate / copy_rate:9.2f}{versus}  {counts.dispatches} dispatches, {counts.submits} submit, "
        f"{counts.bind_groups} bind groups, {counts.bytes_down} bytes read"
    )


if __name__ == "__main__":
    main()
