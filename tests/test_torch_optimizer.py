"""Every optimizer of ours over torch parameters: the same steps as over our own, in one memory."""

import numpy as np
import pytest
from torch_models import mlp, ours, trained

import optirs_web as ow
from optirs_web.datasets import load_digits
from optirs_web.errors import UnsupportedError

__all__ = ["ours", "trained"]

SHAPES = [(6, 4), (3, 5)]
NAMES = [
    name
    for name in ow.optim.__all__
    if isinstance(one := getattr(ow.optim, name), type) and issubclass(one, ow.optim.Optimizer) and name != "Optimizer"
]
AROUND = ("SAM", "Lookahead", "Reptile")
ROWS_ALONE = "SparseAdam"


# The same steps.


def halves(vectors):
    return [0.5 * vector for vector in vectors]


def statistics():
    rng = np.random.default_rng(1)
    return [[rng.standard_normal((7, size)).astype(np.float32) for size in reversed(shape)] for shape in SHAPES]


MORE = {
    "DiagonalNewton": {"diagonal": lambda: [np.full(shape, 2.0, np.float32) for shape in SHAPES]},
    "KFAC": {"statistics": statistics},
    "NewtonCG": {"hvp": halves},
    "SophiaH": {"hvp": halves},
}


def made(module, name, params):
    """The optimizer of that name: of `optim`, or of `interop.torch`."""
    inputs = module.SGD(params, lr=0.1, momentum=0.9) if name in AROUND else params
    return getattr(module, name)(inputs, **MORE.get(name, {}))


def values():
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def stepped(optimizer, params, read, write):
    """The parameters after three steps down a bowl."""

    def closure():
        optimizer.zero_grad()
        for param in params:
            write(param, 0.5 * read(param))
        return sum(float(np.square(read(param), dtype=np.float64).sum()) for param in params) / 4

    for _ in range(3):
        optimizer.step(closure)
    return [read(param) for param in params]


@pytest.mark.parametrize("name", [name for name in NAMES if name != ROWS_ALONE])
def test_an_optimizer_does_to_torch_parameters_what_it_does_to_ours(name, ours, torch):
    theirs = [torch.nn.Parameter(torch.from_numpy(value.copy())) for value in values()]
    params = [ow.Parameter(value, device="cpu") for value in values()]
    got = stepped(
        made(ours, name, theirs),
        theirs,
        lambda tensor: tensor.detach().numpy().copy(),
        lambda one, grad: setattr(one, "grad", torch.from_numpy(grad)),
    )
    expected = stepped(
        made(ow.optim, name, params), params, ow.Parameter.numpy, lambda one, grad: setattr(one, "grad", grad)
    )
    for one, its, before in zip(got, expected, values(), strict=True):
        assert np.array_equal(one, its)
        assert not np.array_equal(one, before)


def test_all_optimizers_are_listed_and_are_torchs(ours, torch):
    assert {*NAMES, "Optimizer", "to_torch"} == {*dir(ours)}
    for name in NAMES:
        assert issubclass(getattr(ours, name), torch.optim.Optimizer)
        assert issubclass(getattr(ours, name), ours.Optimizer)
    with pytest.raises(AttributeError, match="has no attribute 'GradScaler'"):
        ours.GradScaler  # noqa: B018


def cnn(torch):
    torch.manual_seed(0)
    layers = [torch.nn.Unflatten(1, (1, 8, 8)), torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(72, 10))


def losses(torch, model, optimizer, largest_lr, steps=200):
    """Return the losses of a training run as written for torch: with a scheduler, and clipped gradients."""
    digits = load_digits()
    images, labels = torch.from_numpy(digits.train_images), torch.from_numpy(digits.train_labels)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=largest_lr, total_steps=steps)
    result = []
    for number in range(steps):
        batch = torch.arange(64 * number, 64 * (number + 1)) % len(images)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch].long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        result.append(loss.item())
    return np.array(result)


@pytest.mark.parametrize(
    ("model", "name", "lr", "options"),
    [
        (cnn, "AdamW", 0.01, {"weight_decay": 0.05, "fused": True}),
        (mlp, "SGD", 0.05, {"momentum": 0.9, "weight_decay": 1e-3, "nesterov": True}),
    ],
)
def test_one_line_changes_in_a_training_script_and_the_loss_curve_stays(model, name, lr, options, ours, torch):
    curves = []
    for module in (torch.optim, ours):
        trained = model(torch)
        curves.append(losses(torch, trained, getattr(module, name)(trained.parameters(), lr, **options), lr))
    print(f"largest difference of a loss: {np.abs(curves[0] - curves[1]).max():.1e}")
    assert np.abs(curves[0] - curves[1]).max() <= 1e-5
    assert curves[0][-10:].mean() < 0.5 * curves[0][0]


# One memory.


def during(call, times=1):
    """Return the device's counts during calls."""
    device = ow.device("cpu")
    before = device.stats.copy()
    for _ in range(times):
        call()
    return device.stats - before


def test_a_step_copies_the_gradients_that_autograd_made_elsewhere_and_nothing_else(trained):
    model, optimizer, backward = trained
    nbytes = sum(4 * param.numel() for param in model.parameters())

    def step():
        optimizer.zero_grad()
        backward()
        optimizer.step()

    step()
    did = during(step, times=3)
    assert (did.bytes_up, did.bytes_down, did.copies, did.dispatches) == (3 * nbytes, 0, 0, 6)


def test_nothing_is_copied_where_gradients_are_made_zero_and_not_none(trained):
    model, optimizer, backward = trained

    def step():
        optimizer.zero_grad(set_to_none=False)
        backward()
        optimizer.step()

    step()  # has gradients for the first time, made by autograd
    held = [param.grad for param in model.parameters()]
    places = [param.data_ptr() for param in model.parameters()]
    step()
    did = during(step, times=3)
    assert (did.bytes_up, did.bytes_down, did.copies) == (0, 0, 0)
    assert [param.data_ptr() for param in model.parameters()] == places
    assert all(param.grad is grad for param, grad in zip(model.parameters(), held, strict=True))


def test_parameters_are_the_same_objects_each_with_memory_of_its_own(ours, torch):
    model = cnn(torch).to(memory_format=torch.channels_last)
    before = {name: (tensor, tensor.detach().clone()) for name, tensor in model.named_parameters()}
    ours.AdamW(model.parameters())
    for name, param in model.named_parameters():
        assert param is before[name][0]
        assert torch.equal(param, before[name][1])
        assert param.is_contiguous()
        assert param.untyped_storage().nbytes() == param.nbytes  # torch.save writes no more than that


def test_memory_outlives_the_optimizer(ours, torch):
    model = mlp(torch)
    before = [param.detach().clone() for param in model.parameters()]
    ours.SGD(model.parameters())
    for array in before:  # would have the memory that was given back
        ow.Parameter(np.zeros(tuple(array.shape), np.float32), device="cpu")
    assert all(torch.equal(param, tensor) for param, tensor in zip(model.parameters(), before, strict=True))


def test_data_that_a_parameter_is_given_are_stepped_and_not_those_before(trained, torch):
    model, optimizer, backward = trained
    weight = model[0].weight
    backward()
    weight.data = torch.full((64, 32), 2.0).t()
    optimizer.step()
    assert weight.detach().numpy() == pytest.approx(2.0, abs=0.02)
    nbytes = sum(4 * param.numel() for param in model.parameters())
    assert during(optimizer.step).bytes_up == nbytes  # it is back in its place
    square = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    other = type(optimizer)([square], lr=0.0)
    square.data = square.data.t()  # in place, and in another order
    other.step()
    assert square.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    model.load_state_dict({name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()})
    optimizer.step()
    assert weight.abs().max() < 0.02


def test_a_model_that_has_become_of_another_type_is_refused(trained, torch):
    model, optimizer, backward = trained
    backward()
    model.double()
    with pytest.raises(UnsupportedError, match=r"parameter 0 of group 0 is of torch.float64.*model.float\(\)"):
        optimizer.step()
    model.float()
    optimizer.step()
    model[0].weight.data = torch.zeros(3)
    with pytest.raises(UnsupportedError, match=r"had the shape \(32, 64\) and has \(3,\)"):
        optimizer.step()


def test_autograd_knows_that_a_step_has_changed_the_parameters(trained, torch):
    model, optimizer, backward = trained
    backward()
    loss = model(torch.rand(2, 64)).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_optimizers_share_a_parameter(ours, torch):
    weight = torch.nn.Parameter(torch.ones(3))
    first, second = ours.LBFGS([weight], lr=0.1), ours.SGD([weight], lr=1.0)
    weight.grad = torch.ones(3)
    second.step()
    assert weight.tolist() == [0.0] * 3

    def closure():
        weight.grad = torch.ones(3)
        return weight.sum().detach()

    first.step(closure)
    assert weight.max() < 0
    before = weight.detach().clone()
    assert during(second.step).bytes_up == 12  # the gradient
    assert torch.equal(weight, before - 1)
