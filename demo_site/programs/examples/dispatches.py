"""Count GPU dispatches"""

import optirs_web as ow

# An AdamW step takes two dispatches for any number of parameters: they share one arena.
for tensors in (1, 10, 100):
    parameters = [ow.Parameter(ow.ones((64,))) for _ in range(tensors)]
    optimizer = ow.optim.AdamW(parameters)
    for param in parameters:
        param.grad = ow.ones((64,))
    optimizer.step()  # the first step builds the pipelines

    before = ow.stats()
    optimizer.step()
    counts = ow.stats() - before
    print(f"{tensors:3} tensors: {counts.dispatches} dispatches, {counts.bytes_up} bytes up, {counts.bytes_down} down")

print()
print("Since this page opened the device:")
print(ow.stats())
