"""Helpers of the tests of optimizers over torch parameters: the module, and a model that trains."""

import pytest

import optirs_web as ow

__all__ = ["mlp", "ours", "trained"]


@pytest.fixture(autouse=True)
def ours(torch, open_device):
    """`optirs_web.interop.torch`, on the device that it uses."""
    open_device("cpu")
    return ow.interop.torch


def mlp(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


@pytest.fixture
def trained(ours, torch):
    """A model with its optimizer, and a function that does forward and backward."""
    model = mlp(torch)
    optimizer = ours.AdamW(model.parameters(), lr=1e-2)
    x, labels = torch.rand(16, 64), torch.arange(16) % 10

    def backward(model=model):
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        return loss.item()

    return model, optimizer, backward
