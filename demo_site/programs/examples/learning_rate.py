"""Parameter groups and a changing learning rate"""

import math

import optirs_web as ow
from playground import plot

ow.manual_seed(4)
x = ow.randn((256, 8))
target = x @ ow.randn((8, 1)) + 0.5

weight, bias = ow.Parameter(ow.zeros((8, 1))), ow.Parameter(ow.zeros((1,)))
# The bias has its own group, without weight decay.
optimizer = ow.optim.AdamW([{"params": [weight]}, {"params": [bias], "weight_decay": 0.0}], lr=0.1)


def train_step():
    optimizer.zero_grad()
    error = x @ weight + bias - target
    loss = (error * error).mean()
    loss.backward()
    optimizer.step()
    return loss


step = ow.compile(train_step)
rates, losses, steps = [], [], 150
for number in range(steps):
    # Warm up for 20 steps, then follow half a cosine. A recorded step uses the new rate without being recorded again.
    rate = 0.1 * min((number + 1) / 20, 0.5 + 0.5 * math.cos(math.pi * number / steps))
    for group in optimizer.param_groups:
        group["lr"] = rate
    rates.append(rate)
    losses.append(step())

plot(rates, label="learning rate")
plot([min(loss.item(), 0.2) for loss in losses], label="loss, at most 0.2")
print(f"bias {bias.item():.4f}, loss {losses[-1].item():.2e}")
