"""A small ResNet learns to read handwritten digits.

    .venv/bin/python examples/resnet.py --device cpu --steps 200

It trains wherever optirs_web runs, in a page too: `train` takes images and labels as any buffers and yields losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import optirs_web as ow
from optirs_web import nn
from optirs_web.nn import functional as F

CHANNELS, CLASSES, SIDE = 16, 10, 8
BATCH, RATE = 64, 3e-3


class Residual(nn.Module):
    """Two convolutions with a residual connection; with a stride, the input is projected first."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, device: str | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False, device=device)
        self.bn1 = nn.BatchNorm2d(outputs, device=device)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False, device=device)
        self.bn2 = nn.BatchNorm2d(outputs, device=device)
        self.shortcut = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False, device=device), nn.BatchNorm2d(outputs, device=device)
            )

    def forward(self, x: ow.Tensor) -> ow.Tensor:
        y = F.silu(self.bn1(self.conv1(x)))
        return F.silu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Logits of the digits: (n, 64) from 0 (paper) to 1 (ink), row by row, to (n, 10).

    After He et al. 2015, arXiv:1512.03385, with SiLU instead of ReLU: at ReLU's kink, rounding makes runs diverge.
    """

    def __init__(self, channels: int = CHANNELS, device: str | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 3, padding=1, bias=False, device=device)
        self.bn = nn.BatchNorm2d(channels, device=device)
        self.blocks = nn.Sequential(
            Residual(channels, channels, device=device), Residual(channels, 2 * channels, stride=2, device=device)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(2 * channels, CLASSES, device=device)

    def forward(self, images: ow.Tensor) -> ow.Tensor:
        x = F.silu(self.bn(self.conv(images.reshape(-1, 1, SIDE, SIDE))))
        return self.head(self.pool(self.blocks(x)).flatten(1))


def train_step(model: ResNet, optimizer: ow.optim.Optimizer) -> Any:
    """Return a step that is recorded once and replayed: from images and labels to the loss."""

    def step(images: ow.Tensor, labels: ow.Tensor) -> ow.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return ow.compile(step)


def batches(model: ResNet, images: Any, labels: Any, batch: int = BATCH, seed: int = 0) -> Iterator[Any]:
    """Yield images and their labels, epoch after epoch."""
    device = model.head.weight.device
    loader = nn.DataLoader((images, labels), batch, shuffle=True, drop_last=True, seed=seed, device=device)
    while True:
        yield from loader


def train(
    model: ResNet, images: Any, labels: Any, steps: int, batch: int = BATCH, seed: int = 0
) -> Iterator[ow.Tensor]:
    """Train a model; yields the loss of each step, on the device."""
    step = train_step(model, ow.optim.AdamW(model.parameters(), lr=RATE))
    for inputs in islice(batches(model, images, labels, batch, seed), steps):
        yield step(*inputs)


def accuracy(model: ResNet, images: Any, labels: Any) -> float:
    """Return the accuracy: the share of images that the model classifies correctly."""
    device = model.head.weight.device
    model.eval()
    with ow.no_grad():
        predicted = model(ow.tensor(images, device=device)).argmax(-1)
        right = (predicted == ow.tensor(labels, device=device)).float().mean()
    model.train()
    return right.item()


def main() -> None:
    """Train on the digits, print losses and the accuracy on the test images, draw the losses."""
    import running  # next to this file; a page does not need it

    options = running.options(__doc__, steps=200)
    ow.manual_seed(options.seed)
    digits = ow.datasets.load_digits()
    model = ResNet(device=options.device)
    losses: list[float] = []
    steps = train(model, digits.train_images, digits.train_labels, options.steps, seed=options.seed)
    for _ in running.followed(steps, losses):
        print(f"   accuracy {accuracy(model, digits.test_images, digits.test_labels):.2%}")
    if options.out:
        running.draw(losses, options.out / "resnet.png")


if __name__ == "__main__":
    main()
