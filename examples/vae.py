"""A variational autoencoder learns to draw digits (Kingma and Welling 2013, arXiv:1312.6114).

    .venv/bin/python examples/vae.py --device cpu --steps 600

It trains wherever optirs_web runs, in a page too: `train` takes images as any buffer and yields losses, `sample` draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import optirs_web as ow
from optirs_web import nn
from optirs_web.nn import functional as F

PIXELS, HIDDEN, LATENT = 64, 128, 8
BATCH, RATE = 64, 2e-3


class VAE(nn.Module):
    """Map images (n, 64) from 0 to 1 to the logits of their pixels, through a few latent variables."""

    def __init__(self, hidden: int = HIDDEN, latent: int = LATENT, device: str | None = None) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(PIXELS, hidden, device=device), nn.SiLU())
        self.mean = nn.Linear(hidden, latent, device=device)
        self.log_variance = nn.Linear(hidden, latent, device=device)
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden, device=device), nn.SiLU(), nn.Linear(hidden, PIXELS, device=device)
        )

    def forward(self, images: ow.Tensor, noise: ow.Tensor) -> tuple[ow.Tensor, ow.Tensor, ow.Tensor]:
        encoded = self.encoder(images)
        mean, log_variance = self.mean(encoded), self.log_variance(encoded)
        return self.decoder(mean + (0.5 * log_variance).exp() * noise), mean, log_variance


def train_step(model: VAE, optimizer: ow.optim.Optimizer) -> Any:
    """Return a step that is recorded once and replayed: from images and normal noise to the loss."""

    def step(images: ow.Tensor, noise: ow.Tensor) -> ow.Tensor:
        optimizer.zero_grad()
        logits, mean, log_variance = model(images, noise)
        error = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
        divergence = 0.5 * (mean * mean + log_variance.exp() - log_variance - 1.0).sum()
        loss = (error + divergence) / len(images)  # the bound of equation 10, in nats per image
        loss.backward()
        optimizer.step()
        return loss

    return ow.compile(step)


def batches(model: VAE, images: Any, batch: int = BATCH, seed: int = 0) -> Iterator[Any]:
    """Yield images and normal noise for them, epoch after epoch."""
    device = model.mean.weight.device
    loader = nn.DataLoader(images, batch, shuffle=True, drop_last=True, seed=seed, device=device)
    while True:
        for inputs in loader:
            yield inputs, ow.randn((batch, model.latent), device=device)


def train(model: VAE, images: Any, steps: int, batch: int = BATCH, seed: int = 0) -> Iterator[ow.Tensor]:
    """Train a model; yields the loss of each step, on the device."""
    step = train_step(model, ow.optim.Adam(model.parameters(), lr=RATE))
    for inputs in islice(batches(model, images, batch, seed), steps):
        yield step(*inputs)


def sample(model: VAE, count: int) -> ow.Tensor:
    """Return new images, (count, 64) from 0 to 1."""
    with ow.no_grad():
        return model.decoder(ow.randn((count, model.latent), device=model.mean.weight.device)).sigmoid()


def as_text(image: list[float]) -> str:
    """Return an image of eight rows as lines of characters."""
    rows = (image[start : start + 8] for start in range(0, PIXELS, 8))
    return "\n".join("".join(" .:-=+*#%@"[min(9, int(10 * pixel))] * 2 for pixel in row) for row in rows)


def main() -> None:
    """Train on the digits, print losses and images that the model draws, draw the losses."""
    import running  # next to this file; a page does not need it

    options = running.options(__doc__, steps=600)
    ow.manual_seed(options.seed)
    images = ow.datasets.load_digits().train_images
    model = VAE(device=options.device)
    losses: list[float] = []
    for number in running.followed(train(model, images, options.steps, seed=options.seed), losses):
        if number % 300 == 0:
            print("\n\n".join(map(as_text, sample(model, 3).tolist())))
    if options.out:
        running.draw(losses, options.out / "vae.png")


if __name__ == "__main__":
    main()
