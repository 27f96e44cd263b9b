"""A module for the tests of modules."""

import optirs_web as ow
from optirs_web import nn

__all__ = ["Net"]


class Net(nn.Module):
    """Two layers that share a weight, a buffer, and one that is not saved."""

    def __init__(self, device):
        super().__init__()
        self.first = nn.Linear(3, 3, device=device)
        self.second = nn.Linear(3, 3, device=device)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter([2.0], device=device)
        self.register_buffer("mask", ow.tensor([1.0, 0.0, 1.0], device=device))
        self.register_buffer("offset", ow.zeros((3,), device=device), persistent=False)

    def forward(self, x):
        return self.second(self.first(x).relu()) * self.scale * self.mask + self.offset
