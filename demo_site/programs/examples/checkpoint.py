"""Checkpoint to bytes and back"""

import os
import tempfile

import optirs_web as ow

weight = ow.Parameter([1.0, 2.0, 3.0], name="weight")
optimizer = ow.optim.AdamW([weight], lr=0.1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (weight * weight).sum().backward()
        optimizer.step()


train(5)

# One safetensors file: parameters, the optimizer's state, and whatever JSON can hold.
path = os.path.join(tempfile.mkdtemp(), "run.safetensors")
ow.save_checkpoint(path, {"weight": weight}, optimizer, {"steps": 5})
print(f"{os.path.getsize(path)} bytes, {ow.checkpoint_extra(path)}")

train(5)
uninterrupted = weight.tolist()

# Return to step 5 and continue: the numbers are identical to the last bit.
extra = ow.load_checkpoint(path, {"weight": weight}, optimizer)
train(10 - extra["steps"])
print("uninterrupted", uninterrupted)
print("continued    ", weight.tolist())
assert weight.tolist() == uninterrupted
