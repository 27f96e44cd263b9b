"""Our side: Adam over separate parameters, compiled into one replayed program."""

import optirs_web as ow


class Side:
    """Parameters with gradients in place, and their step."""

    def __init__(self, device, problem, adam):
        self.device = device
        self.tensors = [ow.Parameter(values, device=device) for values in problem["parameters"]]
        optimizer = ow.optim.Adam(self.tensors, lr=adam["lr"], betas=(adam["beta1"], adam["beta2"]), eps=adam["eps"])
        for tensor, values in zip(self.tensors, problem["gradients"], strict=True):
            tensor.grad = ow.tensor(values, device=device)
        self.step = ow.compile(lambda: optimizer.step(), device=device)

    def enqueue(self, steps):
        """Enqueue steps without waiting for them."""
        step = self.step
        for _ in range(steps):
            step()

    async def wait(self):
        """Wait until all steps have run."""
        await self.device.synchronize_async()

    async def parameters(self):
        """Return the values of all parameters."""
        return [await tensor.read_async() for tensor in self.tensors]


async def create(problem, adam):
    return Side(await ow.device_async("webgpu"), problem.to_py(), adam.to_py())
