"""Operations as methods of tensors, in NumPy's words and in torch's; copies, parts, and other devices."""

import gc

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.optim.by_identity import ByIdentity

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture
def x(device):
    return ow.tensor(VALUES, device=device, requires_grad=True)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "max", "min", "logsumexp"])
def test_reductions_take_the_words_of_numpy_and_of_torch(name, x):
    reduce = getattr(x, name)
    np.testing.assert_array_equal(reduce(axis=1, keepdims=True).numpy(), reduce(dim=1, keepdim=True).numpy())
    with pytest.raises(TypeError, match="axis and dim are the same"):
        reduce(axis=1, dim=1)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "argmax", "argmin"])
def test_functions_along_an_axis_take_both_words(name, x):
    np.testing.assert_array_equal(getattr(x, name)(axis=0).numpy(), getattr(x, name)(dim=0).numpy())


def test_shapes_change_without_copies(x):
    assert x.flatten(1).shape == (2, 12)
    assert x.flatten(0, 1).shape == (6, 4)
    assert x.mT.shape == (2, 4, 3)
    assert x.permute((2, 0, 1)).shape == x.permute(2, 0, 1).shape == (4, 2, 3)
    turned = x.T.unsqueeze(1)
    assert turned.shape == (4, 1, 3, 2)
    assert turned.squeeze(1).squeeze().strided.view is x.strided.view
    np.testing.assert_array_equal(turned.squeeze().contiguous().numpy(), VALUES.T)
    for changed in (turned, x.flatten(), x.mT.contiguous()):
        (g,) = ow.gradients((changed * changed).sum(), [x])
        np.testing.assert_array_equal(g.numpy(), 2 * VALUES)


def test_parts_are_taken_by_index_and_one_after_the_other(x):
    np.testing.assert_array_equal(x[1, ..., 0].numpy(), VALUES[1, ..., 0])
    np.testing.assert_array_equal([part.numpy() for part in x], VALUES)
    with pytest.raises(TypeError, match="cannot be iterated over"):
        iter(x.sum())


def test_a_copy_passes_gradients_and_a_detached_one_does_not(x):
    copied = x.clone()
    assert copied.strided.view is not x.strided.view
    (g,) = ow.gradients((copied * 3.0).sum(), [x])
    np.testing.assert_array_equal(g.numpy(), np.full_like(VALUES, 3))
    assert not x.detach().clone().requires_grad


@pytest.mark.parametrize("other", ["cpu", "vulkan"])
def test_a_gradient_comes_back_from_another_device(other, x, open_device):
    open_device(other)
    moved = x.to(other)
    assert moved.device.name == other
    (moved * moved).sum().cpu().backward()
    assert x.grad.device is x.device
    np.testing.assert_array_equal(x.grad.numpy(), 2 * VALUES)
    assert x.to("int32").dtype == "int32"


def test_what_is_known_of_an_object_goes_with_it():
    known, one, twin = ByIdentity(), ow.ones((2,), device="cpu"), ow.ones((2,), device="cpu")
    known.set(one, "one")
    assert known.get(one) == "one"
    assert known.get(twin) is None
    del one
    gc.collect()
    assert not known._values
