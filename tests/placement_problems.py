"""What the tests of placement run, what a machine would have been measured to take, and the bytes that are moved."""

import numpy as np

import optirs_web as ow
from optirs_web.placing import cache

ROWS = 8
NBYTES = 4 * ROWS * ROWS
SLOW, FAST = 1.0, 1e-3  # seconds; so far apart that nothing is measured


def matrix(device="cpu", value=0.5):
    return ow.tensor(np.full((ROWS, ROWS), value, np.float32), device=device)


def counted(device, call):
    """What a call returns, and the bytes that were written to the device and read from it."""
    up, write, before = [], device.write, device.stats.copy()
    device.write = lambda view, data: up.append(data.nbytes) or write(view, data)
    try:
        result = call()
    finally:
        del device.write
    return result, (sum(up), (device.stats - before).bytes_down)


def figures(transfer=1e-6, **seconds):
    """What a machine would have been measured to take: for every size alike, FAST unless said otherwise."""
    kinds = [f"{where}_{kind}" for where in ("cpu", "gpu") for kind in ("light", "heavy", "reduction", "product")]
    curves = {one.replace("_", "."): [[1.0, seconds.get(one, FAST)], [1e12, seconds.get(one, FAST)]] for one in kinds}
    return {
        **curves,
        "up": [[1.0, transfer], [1e12, transfer]],
        "down": [[1.0, transfer], [1e12, transfer]],
        "operations": {},
    }


def known(cpu, gpu, **seconds):
    """Have these figures in the cache."""
    cache.store(cache.identity([cpu.info, gpu.info]), figures(**seconds))
