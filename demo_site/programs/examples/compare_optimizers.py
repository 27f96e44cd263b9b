"""Compare optimizers on one problem"""

import optirs_web as ow
from playground import plot

# A badly conditioned bowl: 100 times as steep along the last axis as along the first.
stiffness = ow.tensor([1.0, 3.0, 10.0, 30.0, 100.0])
start = [1.0, 1.0, 1.0, 1.0, 1.0]

choices = {
    "SGD": lambda p: ow.optim.SGD(p, lr=0.015),
    "SGD with momentum": lambda p: ow.optim.SGD(p, lr=0.015, momentum=0.9),
    "Adam": lambda p: ow.optim.Adam(p, lr=0.1),
}


def descend(make, steps=80):
    x = ow.Parameter(start)
    optimizer = make([x])

    def train_step():
        optimizer.zero_grad()
        loss = (stiffness * x * x).sum() / 2
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step)
    return [step() for _ in range(steps)]


for name, make in choices.items():
    losses = [loss.item() for loss in descend(make)]
    plot(losses, label=name)
    print(f"{name:18} ends at {losses[-1]:.2e}")
