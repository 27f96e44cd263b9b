"""Compare our modules and functions with torch's: the same arguments, the same weights."""

import numpy as np

import optirs_web as ow

__all__ = [
    "TOLERANCE",
    "assert_close",
    "classes",
    "floats",
    "fractions",
    "in_ours",
    "in_torch",
    "parts",
    "twins",
    "upper",
]

TOLERANCE = 1e-5


def floats(*shape):
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def classes(count, *shape):
    return lambda rng: rng.integers(0, count, shape).astype(np.int32)


def fractions(*shape):
    return lambda rng: rng.uniform(0.05, 0.95, shape).astype(np.float32)


def upper(length):
    return lambda rng: np.triu(np.ones((length, length), bool), 1)


def twins(torch, build, device):
    """torch's module with weights and buffers of its own choice, in float64, and ours with the same."""
    torch.manual_seed(0)
    theirs, ours = build(torch), build(ow)
    with torch.no_grad():
        for tensor in [*theirs.parameters(), *theirs.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * 0.5)
    ours.load_state_dict(theirs.state_dict())
    return theirs.double(), ours.to(device)


def in_torch(torch, value):
    made = torch.from_numpy(value)
    if made.dtype == torch.float32:
        return made.double().requires_grad_()
    return made.long() if made.dtype == torch.int32 else made


def in_ours(value, device):
    return ow.tensor(value, device=device, requires_grad=value.dtype == np.float32)


def assert_close(ours, theirs, what):
    got, want = ours.numpy().astype(np.float64), theirs.detach().numpy()
    assert got.shape == want.shape, what
    assert np.abs(got - want).max(initial=0) <= TOLERANCE * max(1.0, np.abs(want).max(initial=0)), what


def parts(result):
    return result if isinstance(result, tuple) else (result,)
