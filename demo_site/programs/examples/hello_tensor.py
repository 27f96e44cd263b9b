"""Hello, tensor"""

import optirs_web as ow

# A tensor lives on the GPU. Lists, arrays and anything with the buffer protocol are accepted.
x = ow.tensor([[1.0, 2.0], [3.0, 4.0]])
print(x)  # shape, type and device: printing does not wait for the GPU

# Arithmetic is enqueued there, with NumPy's broadcasting.
y = x @ x + 1
z = (y * [10.0, 0.1]).relu()

# Only reading waits.
print("x @ x + 1 =", y.tolist())
print("scaled    =", z.tolist())
print("mean      =", z.mean().item())

print("device    =", ow.device().info.description)
