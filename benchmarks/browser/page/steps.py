"""Our side of the cases of steps.py: each is compiled into one replayed program."""

import optirs_web as ow


class Side:
    """A step that is compiled, and how its result is waited for."""

    def __init__(self, step, device):
        self.step = ow.compile(step, device=device)

    async def run(self, steps):
        """Enqueue the steps; the value that is read from the last one's result."""
        for _ in range(steps):
            self.last = self.step()
        return await self.read()


class Product(Side):
    """The product of two matrices."""

    def __init__(self, problem, adam, device):
        size = problem["size"]
        a, b = (tensor(problem[name], (size, size), device) for name in ("a", "b"))
        super().__init__(lambda: a @ b, device)

    async def read(self):
        """The first element of the last product."""
        return await self.last[0, 0].item_async()

    async def result(self):
        """The bytes of the last product."""
        return (await self.last.read_async()).cast("B")


class Mlp(Side):
    """Forward, backward and Adam over a multi-layer perceptron."""

    def __init__(self, problem, adam, device):
        inputs = tensor(**problem["inputs"], device=device)
        labels = ow.tensor(problem["labels"], device=device)
        parameters = [ow.Parameter(tensor(**parameter, device=device)) for parameter in problem["parameters"]]
        weights, biases = parameters[0::2], parameters[1::2]
        optimizer = ow.optim.Adam(parameters, lr=adam["lr"], betas=(adam["beta1"], adam["beta2"]), eps=adam["eps"])

        def step():
            optimizer.zero_grad()
            values = inputs @ weights[0] + biases[0]
            for weight, bias in zip(weights[1:], biases[1:], strict=True):
                values = values.relu() @ weight + bias
            loss = ow.cross_entropy(values, labels)
            loss.backward()
            optimizer.step()
            return loss

        super().__init__(step, device)

    async def read(self):
        """The last loss."""
        return await self.last.item_async()


KINDS = {"product": Product, "mlp": Mlp}


def tensor(values, shape, device):
    return ow.tensor(values.cast("B").cast("f", tuple(shape)), device=device)


async def create(kind, problem, adam):
    device = await ow.device_async("webgpu")
    return KINDS[kind](problem.to_py(), adam.to_py(), device)
