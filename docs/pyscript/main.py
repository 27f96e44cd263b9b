"""Train a small network on the GPU of whoever opens the page: is a point in the first or third quadrant?"""

import random

from pyscript import web

import optirs_web as ow

POINTS = [[random.uniform(-1, 1), random.uniform(-1, 1)] for _ in range(512)]
LABELS = [int(x * y > 0) for x, y in POINTS]


def say(text):
    web.page["output"].textContent = text


async def main():
    device = await ow.device_async("webgpu")
    points, labels = ow.tensor(POINTS), ow.tensor(LABELS, dtype="int32")
    w1, b1 = ow.Parameter(ow.randn((2, 32), seed=1)), ow.Parameter([0.0] * 32)
    w2, b2 = ow.Parameter(ow.randn((32, 2), seed=2)), ow.Parameter([0.0] * 2)
    optimizer = ow.optim.AdamW([w1, b1, w2, b2], lr=0.02)

    def logits():
        return (points @ w1 + b1).relu() @ w2 + b2

    def train_step():
        optimizer.zero_grad()
        loss = ow.cross_entropy(logits(), labels)
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step)
    for epoch in range(1, 101):
        loss = step()
        if epoch % 10 == 0:  # each look at the loss waits for the GPU
            say(f"{device.info.description}: epoch {epoch}, loss {await loss.item_async():.4f}")

    with ow.no_grad():
        guesses = await logits().tolist_async()
    right = sum((second > first) == label for (first, second), label in zip(guesses, LABELS, strict=True))
    say(f"{device.info.description}: {right / len(LABELS):.1%} of {len(LABELS)} points are classified correctly")


await main()
