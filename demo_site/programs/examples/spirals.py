"""A network untangles two spirals"""

import math
from itertools import pairwise

import optirs_web as ow
from playground import plot

# Two arms that wind around each other: no straight line separates them.
points, labels = [], []
for number in range(200):
    fraction, arm = number / 200, number % 2
    angle = 3.5 * math.pi * fraction + math.pi * arm
    points.append([fraction * math.cos(angle), fraction * math.sin(angle)])
    labels.append(arm)

# A multi-layer perceptron: 2 inputs, two hidden layers of 32, 2 classes.
ow.manual_seed(2)
widths = [2, 32, 32, 2]
layers = [
    (ow.Parameter(ow.randn((rows, columns)) * math.sqrt(2 / rows)), ow.Parameter(ow.zeros((columns,))))
    for rows, columns in pairwise(widths)
]
optimizer = ow.optim.AdamW([param for layer in layers for param in layer], lr=0.01)


def forward(values):
    for number, (weight, bias) in enumerate(layers):
        values = values @ weight + bias
        if number < len(layers) - 1:
            values = values.relu()
    return values


def train_step(points, labels):
    optimizer.zero_grad()
    loss = ow.cross_entropy(forward(points), labels)
    loss.backward()
    optimizer.step()
    return loss


step = ow.compile(train_step)
x, y = ow.tensor(points), ow.tensor(labels)
losses = []
for number in range(301):
    losses.append(step(x, y))
    if number % 100 == 0:
        print(f"step {number:3}  loss {losses[-1].item():.4f}")

plot([loss.item() for loss in losses], label="cross-entropy")

with ow.no_grad():
    logits = forward(x).tolist()
right = sum((row[1] > row[0]) == bool(label) for row, label in zip(logits, labels))
print(f"{right} of {len(labels)} points classified correctly")
