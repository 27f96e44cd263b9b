"""The time of a call: what the benchmarks that let several calls take turns share."""

import time

__all__ = ["seconds"]


def seconds(call, repeats, wait=None):
    """Of each of so many calls, with the wait for what the last of them left to be done."""
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    if wait:
        wait()
    return (time.perf_counter() - started) / repeats
