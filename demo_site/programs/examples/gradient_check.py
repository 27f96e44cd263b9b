"""Check a gradient by central differences"""

import optirs_web as ow


def f(x):
    """A function of a vector, with the operations of a small network."""
    hidden = (x @ [[0.5, -1.0], [1.5, 0.25], [-0.75, 2.0]]).relu()
    return (hidden * hidden).sum() + (-x).exp().mean() - x.log_softmax().sum()


at = [0.3, -0.8, 1.2]
x = ow.Parameter([at])
f(x).backward()
gradient = x.grad.tolist()[0]

# float32 has 24 bits: a step of 2^-8 balances rounding against curvature.
h = 2**-8
print("axis   backward   differences")
for axis in range(3):
    ahead, behind = list(at), list(at)
    ahead[axis] += h
    behind[axis] -= h
    difference = (f(ow.tensor([ahead])).item() - f(ow.tensor([behind])).item()) / (2 * h)
    print(f"{axis:4} {gradient[axis]:10.5f} {difference:13.5f}")
    assert abs(gradient[axis] - difference) < 1e-2
