"""How fast is the memory?"""

import time

import optirs_web as ow
from playground import plot

REPEATS = 20


def seconds_of(a):
    """Return the seconds of one a * 2, which reads and writes every element once."""
    began = time.perf_counter()
    for _ in range(REPEATS):
        a * 2
    ow.device().synchronize()
    return (time.perf_counter() - began) / REPEATS


# Small tensors show what a dispatch costs, large ones the memory.
exponents, rates = range(12, 23, 2), []
for exponent in exponents:
    a = ow.ones((1 << exponent,))
    seconds_of(a)  # warm up
    best = min(seconds_of(a) for _ in range(5))
    rates.append(8 * a.size / best / 1e9)
    print(f"{a.size:9,} elements: {1e3 * best:8.3f} ms, {rates[-1]:7.2f} GB/s")

plot(exponents, rates, label="GB/s against log2 of the number of elements")
