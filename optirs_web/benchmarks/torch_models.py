"""The models of `models.py`, written in torch independently: the same parameter names and batches."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from .models import MLP_SIZES

__all__ = ["GPT", "MLP", "MODELS", "VAE", "ResNet"]


class MLP(nn.Module):
    """A perceptron."""

    def __init__(self, sizes=MLP_SIZES):
        super().__init__()
        layers = [layer for inputs, outputs in pairwise(sizes) for layer in (nn.Linear(inputs, outputs), nn.ReLU())]
        self.layers = nn.Sequential(*layers[:-1])
        self.optimizer = lambda **options: torch.optim.AdamW(self.parameters(), lr=1e-3, **options)

    def loss(self, x, labels):
        return F.cross_entropy(self.layers(x), labels.long())


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        y, length = self.norm1(x), x.shape[1]
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        x = x + self.attention(y, y, y, attn_mask=hidden, need_weights=False)[0]
        return x + self.network(self.norm2(x))


class GPT(nn.Module):
    """A small GPT."""

    def __init__(self, characters, block=64, width=64, layers=2, heads=4):
        super().__init__()
        self.character, self.position = nn.Embedding(characters, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)
        self.optimizer = lambda **options: torch.optim.AdamW(self.parameters(), lr=6e-3, **options)

    def loss(self, codes, following):
        x = self.character(codes) + self.position(torch.arange(codes.shape[1], device=codes.device))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), following.flatten().long())


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        convolved = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.shortcut = nn.Sequential(*convolved) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.silu(self.bn2(self.conv2(F.silu(self.bn1(self.conv1(x))))) + self.shortcut(x))


class ResNet(nn.Module):
    """A small ResNet."""

    def __init__(self, channels=16):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential(Residual(channels, channels, 1), Residual(channels, 2 * channels, 2))
        self.head = nn.Linear(2 * channels, 10)
        self.optimizer = lambda **options: torch.optim.AdamW(self.parameters(), lr=3e-3, **options)

    def loss(self, images, labels):
        x = self.blocks(F.silu(self.bn(self.conv(images.reshape(-1, 1, 8, 8)))))
        return F.cross_entropy(self.head(x.mean((2, 3))), labels.long())


class VAE(nn.Module):
    """A small variational autoencoder."""

    def __init__(self, hidden=128, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.SiLU())
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, 64))
        self.optimizer = lambda **options: torch.optim.Adam(self.parameters(), lr=2e-3, **options)

    def loss(self, images, noise):
        encoded = self.encoder(images)
        mean, log_variance = self.mean(encoded), self.log_variance(encoded)
        logits = self.decoder(mean + torch.exp(log_variance / 2) * noise)
        prior = torch.distributions.Normal(0.0, 1.0)
        posterior = torch.distributions.Normal(mean, torch.exp(log_variance / 2))
        error = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
        return (error + torch.distributions.kl_divergence(posterior, prior).sum()) / len(images)


def _gpt():
    from ..datasets import load_book

    return GPT(len(set(load_book())))


MODELS = {"mlp": MLP, "gpt": _gpt, "resnet": ResNet, "vae": VAE}
"""The models by the names of `models.py`, with the sizes of `examples/`."""
