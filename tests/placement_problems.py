"""Programs of the tests of placement, rates as of a measured machine, and counts of the bytes that are moved."""

import numpy as np

import optirs_web as ow
from optirs_web.placing import cache
from optirs_web.placing.rates import Rates

ROWS = 8
NBYTES = 4 * ROWS * ROWS
SLOW, FAST = 1.0, 1e-3  # seconds


def matrix(device="cpu", value=0.5):
    return ow.tensor(np.full((ROWS, ROWS), value, np.float32), device=device)


def counted(device, call):
    """Return the result of a call, and the bytes that were written to the device and read from it."""
    up, write, before = [], device.write, device.stats.copy()
    device.write = lambda view, data: up.append(data.nbytes) or write(view, data)
    try:
        result = call()
    finally:
        del device.write
    return result, (sum(up), (device.stats - before).bytes_down)


def rates(transfer=1e-6, **seconds):
    """Return rates that are the same for every size, FAST where none are given."""
    transfers = {"up": transfer, "down": transfer}
    by_kind = {kind: {**transfers, **seconds}.get(kind, FAST) for kind in Rates._fields}
    return Rates(**{kind: [(1.0, own), (1e12, own)] for kind, own in by_kind.items()})


def known(cpu, gpu, transfer=1e-6, **seconds):
    """Have these rates in the cache: `cpu_heavy=SLOW` for those of the exponential on the processor."""
    for name, device in (("cpu", cpu), ("gpu", gpu)):
        own = {key.removeprefix(f"{name}_"): value for key, value in seconds.items() if key.startswith(name)}
        cache.store(device.info, rates(transfer, **own))
