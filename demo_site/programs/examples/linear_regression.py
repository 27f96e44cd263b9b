"""Linear regression"""

import optirs_web as ow
from playground import plot

# Points around the line y = 3x - 1.
ow.manual_seed(0)
x = ow.rand((200, 1)) * 2 - 1
y = 3 * x - 1 + 0.1 * ow.randn((200, 1))

slope, offset = ow.Parameter([[0.0]], name="slope"), ow.Parameter([0.0], name="offset")
optimizer = ow.optim.SGD([slope, offset], lr=0.1)

losses = []
for _ in range(100):
    optimizer.zero_grad()
    error = x @ slope + offset - y
    loss = (error * error).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss)  # not read yet: the GPU runs behind

plot([loss_.item() for loss_ in losses], label="mean squared error")
print(f"y = {slope.item():.3f} x + {offset.item():.3f}")
