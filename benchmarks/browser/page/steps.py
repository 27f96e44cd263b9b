"""Our side of the cases of steps.py: each is compiled into one replayed program."""

import optirs_web as ow


class Side:
    """A compiled step, whose result subclasses read."""

    def __init__(self, step, device):
        self.step = ow.compile(step, device=device)

    async def run(self, steps):
        """Enqueue the steps, and return the value read from the result of the last."""
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
        """Return the first element of the last product."""
        return await self.last[0, 0].item_async()

    async def result(self):
        """Return the bytes of the last product."""
        return (await self.last.read_async()).cast("B")


class Training(Side):
    """Forward, cross entropy, backward and Adam; `model` returns the logits."""

    def __init__(self, model, parameters, problem, adam, device):
        labels = ow.tensor(problem["labels"], device=device)
        optimizer = ow.optim.Adam(parameters, lr=adam["lr"], betas=(adam["beta1"], adam["beta2"]), eps=adam["eps"])

        def step():
            optimizer.zero_grad()
            loss = ow.cross_entropy(model(), labels)
            loss.backward()
            optimizer.step()
            return loss

        super().__init__(step, device)

    async def read(self):
        """Return the last loss."""
        return await self.last.item_async()


def mlp(problem, adam, device):
    """Return the training step of a multi-layer perceptron."""
    inputs = tensor(**problem["inputs"], device=device)
    parameters = [ow.Parameter(tensor(**parameter, device=device)) for parameter in problem["parameters"]]
    weights, biases = parameters[0::2], parameters[1::2]

    def model():
        values = inputs @ weights[0] + biases[0]
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            values = values.relu() @ weight + bias
        return values

    return Training(model, parameters, problem, adam, device)


def resnet(problem, adam, device):
    """Return the training step of the ResNet of models.py."""
    import models

    model = filled(models.resnet(problem["blocks"], device), problem, device)
    inputs = tensor(**problem["inputs"], device=device)
    return Training(lambda: model(inputs), list(model.parameters()), problem, adam, device)


def gpt(problem, adam, device):
    """Return the training step of the model of examples/gpt.py."""
    from gpt import GPT

    characters, width = problem["parameters"][0]["shape"]
    codes = problem["codes"]
    batch, length = codes["shape"]
    model = GPT(characters, length, width, problem["layers"], problem["heads"], device)
    model = filled(model, problem, device)
    inputs = ow.tensor(codes["values"].cast("B").cast("i", (batch, length)), device=device)
    return Training(lambda: model(inputs).reshape(-1, characters), list(model.parameters()), problem, adam, device)


KINDS = {"product": Product, "mlp": mlp, "resnet": resnet, "gpt": gpt}


def filled(model, problem, device):
    """Assign a problem's parameters to those of a model, in the same order, and return the model."""
    with ow.no_grad():
        for own, parameter in zip(model.parameters(), problem["parameters"], strict=True):
            own.assign(tensor(**parameter, device=device))
    return model


def tensor(values, shape, device):
    return ow.tensor(values.cast("B").cast("f", tuple(shape)), device=device)


async def create(kind, problem, adam):
    device = await ow.device_async("webgpu")
    return KINDS[kind](problem.to_py(), adam.to_py(), device)
