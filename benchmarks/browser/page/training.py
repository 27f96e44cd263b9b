"""A training step as pages run it: forward, backward and AdamW over an MLP 64-256-10, compiled."""

import math

import optirs_web as ow

BATCH = 64


async def open_device():
    await ow.device_async("webgpu")


def weights(inputs, outputs):
    bound = 1 / math.sqrt(inputs)
    return ow.Parameter((ow.rand((inputs, outputs)) * 2.0 - 1.0) * bound)


class Training:
    """A model, its optimizer and one batch, on the device that is open."""

    def __init__(self):
        ow.manual_seed(0)
        self.images = ow.rand((BATCH, 64))
        self.labels = ow.tensor([i % 10 for i in range(BATCH)])
        layers = [weights(64, 256), ow.Parameter(ow.zeros(256)), weights(256, 10), ow.Parameter(ow.zeros(10))]
        optimizer = ow.optim.AdamW(layers, lr=1e-3)

        def step(images, labels):
            optimizer.zero_grad()
            hidden = (images @ layers[0] + layers[1]).relu()
            loss = ow.cross_entropy(hidden @ layers[2] + layers[3], labels)
            loss.backward()
            optimizer.step()
            return loss

        self.step = ow.compile(step)

    def run(self):
        """Enqueue a step and return its loss."""
        return self.step(self.images, self.labels)

    async def run_many(self, steps, pause):
        """Run steps, wait for the loss after every `pause` of them, and return the last loss."""
        for number in range(1, steps + 1):
            loss = self.run()
            if number % pause == 0:
                await loss.item_async()
        return await loss.item_async()
