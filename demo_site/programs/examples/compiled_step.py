"""Compile a training step"""

import time

import optirs_web as ow

# The same step, once as Python runs it and once recorded and replayed.
ow.manual_seed(3)
x, y = ow.randn((64, 16)), ow.randn((64, 1))
weight = ow.Parameter(ow.randn((16, 1)))
optimizer = ow.optim.AdamW([weight], lr=0.01)


def train_step(x, y):
    optimizer.zero_grad()
    error = x @ weight - y
    loss = (error * error).mean()
    loss.backward()
    optimizer.step()
    return loss


def report(name, step, steps=50):
    step(x, y).item()  # warm up
    before, began = ow.stats(), time.perf_counter()
    for _ in range(steps):
        loss = step(x, y)
    loss.item()  # wait once
    took, counts = time.perf_counter() - began, ow.stats() - before
    print(f"{name:9} {1e3 * took / steps:7.3f} ms a step, {counts.submits / steps:5.1f} submits, "
          f"{counts.bind_groups / steps:5.1f} bind groups")  # fmt: skip


report("eager", train_step)
report("compiled", ow.compile(train_step))
