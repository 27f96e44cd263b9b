"""Logistic regression"""

import optirs_web as ow
from playground import plot

# Two clouds of points, around (1, 1) and (-1, -1), with labels 0 and 1.
ow.manual_seed(1)
count = 400
labels = ow.tensor([number % 2 for number in range(count)])
side = ow.tensor([[1.0 - 2.0 * (number % 2)] for number in range(count)])
points = ow.randn((count, 2)) + side

weight, bias = ow.Parameter(ow.zeros((2, 2))), ow.Parameter(ow.zeros((2,)))
optimizer = ow.optim.Adam([weight, bias], lr=0.05)


def train_step(points, labels):
    optimizer.zero_grad()
    loss = ow.cross_entropy(points @ weight + bias, labels)
    loss.backward()
    optimizer.step()
    return loss


step = ow.compile(train_step)
plot([step(points, labels).item() for _ in range(80)], label="cross-entropy")

logits = (points @ weight + bias).tolist()
right = sum((row[1] > row[0]) == (number % 2 == 1) for number, row in enumerate(logits))
print(f"{right} of {count} points classified correctly")
