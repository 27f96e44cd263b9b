"""Torch's weights in our modules: the same names, text, outputs and gradients, and the same first values."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save_file
from torch_twins import assert_close, classes, floats, fractions, in_ours, in_torch, parts, twins, upper

import optirs_web as ow
from optirs_web import nn


def padding(rows, columns):
    return lambda rng: np.arange(columns) >= np.arange(rows)[:, None] + 2


class Row(NamedTuple):
    """A module of `torch` or `optirs_web`, what it is called with, and how."""

    build: Callable[[Any], Any]
    inputs: list[Callable[[np.random.Generator], np.ndarray]]
    call: Callable[..., Any] = lambda module, *inputs: module(*inputs)
    trains: bool = True


def attends(**options):
    def call(module, *inputs):
        result, weights = module(inputs[0], inputs[0], inputs[0], *inputs[1:], **options)
        return result if weights is None else (result, weights)

    return call


def attends_to_others(module, query, key, value):
    return module(query, key, value)


def attends_causally(need_weights):
    def call(module, x, mask):
        result, weights = module(x, x, x, attn_mask=mask, need_weights=need_weights, is_causal=True)
        return (result, weights) if need_weights else result

    return call


ROWS = {
    "AdaptiveAvgPool2d": [Row(lambda lib: lib.nn.AdaptiveAvgPool2d((3, 1)), [floats(2, 3, 6, 5)])],
    "AvgPool2d": [
        Row(lambda lib: lib.nn.AvgPool2d(2), [floats(2, 3, 6, 5)]),
        Row(lambda lib: lib.nn.AvgPool2d((3, 2), stride=1, padding=1), [floats(2, 3, 6, 5)]),
        Row(lambda lib: lib.nn.AvgPool2d(3, padding=1, count_include_pad=False), [floats(2, 3, 6, 5)]),
    ],
    "BCELoss": [
        Row(lambda lib: lib.nn.BCELoss(), [fractions(4, 3), fractions(4, 3)]),
        Row(lambda lib: lib.nn.BCELoss(reduction="sum"), [fractions(4, 3), fractions(4, 3)]),
    ],
    "BCEWithLogitsLoss": [
        Row(lambda lib: lib.nn.BCEWithLogitsLoss(), [floats(4, 3), fractions(4, 3)]),
        Row(lambda lib: lib.nn.BCEWithLogitsLoss(
                lib.tensor([1.0, 2.0, 0.5]), reduction="none", pos_weight=lib.tensor([3.0, 1.0, 2.0])
            ),
            [floats(4, 3), fractions(4, 3)]),
    ],
    "BatchNorm1d": [
        Row(lambda lib: lib.nn.BatchNorm1d(4), [floats(5, 4)]),
        Row(lambda lib: lib.nn.BatchNorm1d(4, momentum=None), [floats(5, 4, 3)]),
        Row(lambda lib: lib.nn.BatchNorm1d(4, affine=False), [floats(5, 4)], trains=False),
        Row(lambda lib: lib.nn.BatchNorm1d(4, track_running_stats=False), [floats(5, 4)], trains=False),
    ],
    "BatchNorm2d": [
        Row(lambda lib: lib.nn.BatchNorm2d(3, bias=False), [floats(4, 3, 5, 2)]),
        Row(lambda lib: lib.nn.BatchNorm2d(3, eps=1e-3, momentum=0.3), [floats(4, 3, 5, 2)]),
        Row(lambda lib: lib.nn.BatchNorm2d(3), [floats(4, 3, 5, 2)], trains=False),
    ],
    "Conv2d": [
        Row(lambda lib: lib.nn.Conv2d(3, 4, 3), [floats(2, 3, 6, 7)]),
        Row(lambda lib: lib.nn.Conv2d(4, 6, (3, 2), 2, (1, 0), 2, 2, bias=False), [floats(2, 4, 8, 7)]),
        Row(lambda lib: lib.nn.Conv2d(3, 4, (3, 4), padding="same"), [floats(3, 6, 7)]),
        Row(lambda lib: lib.nn.Conv2d(3, 4, 1, padding="valid"), [floats(2, 3, 4, 4)]),
    ],
    "CrossEntropyLoss": [
        Row(lambda lib: lib.nn.CrossEntropyLoss(), [floats(6, 4), classes(4, 6)]),
        Row(lambda lib: lib.nn.CrossEntropyLoss(lib.tensor([1.0, 2.0, 0.5, 0.0]), ignore_index=1, label_smoothing=0.1),
            [floats(6, 4), classes(4, 6)]),
        Row(lambda lib: lib.nn.CrossEntropyLoss(reduction="none"), [floats(3, 4, 5), classes(4, 3, 5)]),
    ],
    "Dropout": [
        Row(lambda lib: lib.nn.Dropout(0.3), [floats(4, 5)], trains=False),
        Row(lambda lib: lib.nn.Dropout(0.0), [floats(4, 5)]),
    ],
    "Embedding": [
        Row(lambda lib: lib.nn.Embedding(7, 4), [classes(7, 3, 5)]),
        Row(lambda lib: lib.nn.Embedding(7, 4, padding_idx=-2), [classes(7, 30)]),
    ],
    "Flatten": [
        Row(lambda lib: lib.nn.Flatten(), [floats(2, 3, 4)]),
        Row(lambda lib: lib.nn.Flatten(0, -2), [floats(2, 3, 4)]),
    ],
    "GELU": [
        Row(lambda lib: lib.nn.GELU(), [floats(4, 5)]),
        Row(lambda lib: lib.nn.GELU(approximate="tanh"), [floats(4, 5)]),
    ],
    "Identity": [Row(lambda lib: lib.nn.Identity(3, unused=True), [floats(4, 5)])],
    "L1Loss": [Row(lambda lib: lib.nn.L1Loss(), [floats(4, 5), floats(4, 5)])],
    "LayerNorm": [
        Row(lambda lib: lib.nn.LayerNorm(5), [floats(4, 5)]),
        Row(lambda lib: lib.nn.LayerNorm((3, 5), eps=1e-3, bias=False), [floats(2, 3, 5)]),
        Row(lambda lib: lib.nn.LayerNorm([5], elementwise_affine=False), [floats(2, 3, 5)]),
    ],
    "LeakyReLU": [
        Row(lambda lib: lib.nn.LeakyReLU(), [floats(4, 5)]),
        Row(lambda lib: lib.nn.LeakyReLU(0.2, inplace=True), [floats(4, 5)], lambda module, x: module(x * 1.0)),
    ],
    "Linear": [
        Row(lambda lib: lib.nn.Linear(5, 3), [floats(4, 5)]),
        Row(lambda lib: lib.nn.Linear(5, 3, bias=False), [floats(2, 4, 5)]),
        Row(lambda lib: lib.nn.Linear(5, 3), [floats(5)]),
    ],
    "LogSoftmax": [Row(lambda lib: lib.nn.LogSoftmax(dim=1), [floats(4, 5, 3)])],
    "MSELoss": [
        Row(lambda lib: lib.nn.MSELoss(), [floats(4, 5), floats(4, 5)]),
        Row(lambda lib: lib.nn.MSELoss(reduction="none"), [floats(4, 5), floats(4, 5)]),
    ],
    "MaxPool2d": [
        Row(lambda lib: lib.nn.MaxPool2d(2), [floats(2, 3, 6, 5)]),
        Row(lambda lib: lib.nn.MaxPool2d((3, 2), stride=(2, 1), padding=1, dilation=(2, 1)), [floats(2, 3, 8, 5)]),
    ],
    "ModuleDict": [
        Row(lambda lib: lib.nn.ModuleDict({"a": lib.nn.Linear(5, 3), "b": lib.nn.Tanh()}), [floats(4, 5)],
            lambda module, x: module["b"](module["a"](x))),
    ],
    "ModuleList": [
        Row(lambda lib: lib.nn.ModuleList([lib.nn.Linear(5, 5), lib.nn.Linear(5, 5), lib.nn.Linear(5, 2)]),
            [floats(4, 5)], lambda module, x: module[2](module[1](module[0](x)))),
    ],
    "MultiheadAttention": [
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2), [floats(5, 3, 8)], attends()),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 4, batch_first=True), [floats(3, 5, 8)],
            attends(need_weights=False)),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2, bias=False, batch_first=True), [floats(3, 5, 8), padding(3, 5)],
            attends(average_attn_weights=False)),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2, batch_first=True), [floats(3, 5, 8), padding(3, 5)],
            attends(need_weights=False)),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2), [floats(5, 8)], attends()),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2), [floats(5, 3, 8), upper(5)], attends_causally(True)),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2), [floats(5, 3, 8), upper(5)], attends_causally(False)),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2, batch_first=True), [floats(3, 5, 8), floats(6, 5, 5)],
            lambda module, x, mask: module(x, x, x, attn_mask=mask)),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2), [floats(5, 3, 8), padding(3, 5), upper(5)],
            lambda module, x, hidden, mask: module(x, x, x, hidden, False, mask)[0]),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2, kdim=5, vdim=6),
            [floats(4, 3, 8), floats(7, 3, 5), floats(7, 3, 6)], attends_to_others),
        Row(lambda lib: lib.nn.MultiheadAttention(8, 2, batch_first=True),
            [floats(3, 4, 8), floats(3, 7, 8), floats(3, 7, 8)], attends_to_others),
    ],
    "NLLLoss": [Row(lambda lib: lib.nn.NLLLoss(), [floats(6, 4), classes(4, 6)])],
    "ReLU": [
        Row(lambda lib: lib.nn.ReLU(), [floats(4, 5)]),
        Row(lambda lib: lib.nn.ReLU(inplace=True), [floats(4, 5)], lambda module, x: module(x * 1.0)),
    ],
    "Sequential": [
        Row(lambda lib: lib.nn.Sequential(lib.nn.Linear(5, 4), lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Linear(4, 2))),
            [floats(4, 5)]),
    ],
    "SiLU": [Row(lambda lib: lib.nn.SiLU(), [floats(4, 5)])],
    "Sigmoid": [Row(lambda lib: lib.nn.Sigmoid(), [floats(4, 5)])],
    "Softmax": [Row(lambda lib: lib.nn.Softmax(dim=-1), [floats(4, 5)])],
    "Softplus": [Row(lambda lib: lib.nn.Softplus(beta=2.0, threshold=1.0), [floats(4, 5)])],
    "Tanh": [Row(lambda lib: lib.nn.Tanh(), [floats(4, 5)])],
}  # fmt: skip

CASES = [pytest.param(row, id=f"{name}-{number}") for name, rows in ROWS.items() for number, row in enumerate(rows)]


def test_every_module_has_a_row():
    modules = {
        name
        for name in nn.__all__
        if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Module) and name != "Module"
    }
    assert modules == set(ROWS)


@pytest.mark.parametrize("row", CASES)
def test_weights_outputs_and_gradients_are_torchs(torch, device, row):
    theirs, ours = twins(torch, row.build, device)
    theirs.train(row.trains)
    ours.train(row.trains)
    rng = np.random.default_rng(0)
    values = [make(rng) for make in row.inputs]
    their_inputs = [in_torch(torch, value) for value in values]
    our_inputs = [in_ours(value, device) for value in values]
    their_results = parts(row.call(theirs, *their_inputs))
    our_results = parts(row.call(ours, *our_inputs))
    for number, (param, other) in enumerate(zip(our_results, their_results, strict=True)):
        assert_close(param, other, f"output {number}")
        weights = rng.standard_normal(tuple(other.shape)).astype(np.float32)
        is_last = number == len(our_results) - 1
        other.backward(torch.from_numpy(weights).double(), retain_graph=not is_last)
        param.backward(weights, retain_graph=not is_last)
    for (name, param), (_, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert_close(param.grad, other.grad, f"the gradient of {name}")
    for number, (param, other) in enumerate(zip(our_inputs, their_inputs, strict=True)):
        if other.requires_grad:
            assert_close(param.grad, other.grad, f"the gradient of input {number}")
    for (name, param), (_, other) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
        assert_close(param, other, name)


@pytest.mark.parametrize("row", CASES)
def test_names_shapes_and_text_are_torchs(torch, row):
    theirs, ours = row.build(torch), row.build(ow)
    described = [(name, tuple(array.shape)) for name, array in theirs.state_dict().items()]
    assert [(name, array.shape) for name, array in ours.state_dict().items()] == described
    for mine, its in [
        (ours.named_parameters(), theirs.named_parameters()),
        (ours.named_modules(), theirs.named_modules()),
    ]:
        assert [name for name, _ in mine] == [name for name, _ in its]
    assert repr(ours) == repr(theirs).replace("NonDynamicallyQuantizableLinear", "Linear")


def test_weights_go_back_to_torch(torch):
    build = lambda lib: lib.nn.Sequential(lib.nn.Conv2d(2, 3, 3), lib.nn.BatchNorm2d(3))  # noqa: E731
    theirs, ours = build(torch), build(ow)
    theirs.load_state_dict(ow.interop.torch.to_torch(ours.state_dict()))
    for param, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert param.numpy().tolist() == other.tolist()


def test_weights_come_as_arrays_and_files_too(torch, tmp_path):
    build = lambda lib: lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4))  # noqa: E731
    theirs = build(torch)
    arrays = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    save_file(arrays, tmp_path / "model.safetensors")
    x = np.ones((2, 3), np.float32)
    expected = theirs.eval()(torch.from_numpy(x)).tolist()
    for state in (
        arrays,
        {name: tensor.half() for name, tensor in theirs.state_dict().items()},
        {
            name: tensor.bfloat16() if tensor.is_floating_point() else tensor
            for name, tensor in theirs.state_dict().items()
        },
        dict(theirs.named_parameters()) | dict(theirs.named_buffers()),
        ow.interop.safetensors.load_state_dict(tmp_path / "model.safetensors"),
    ):
        ours = build(ow)
        ours.load_state_dict(state)
        assert ours.eval()(ow.tensor(x)).numpy() == pytest.approx(np.array(expected), abs=2e-2)


# First values.

LARGE = {
    "Linear": lambda lib: lib.nn.Linear(200, 150),
    "Conv2d": lambda lib: lib.nn.Conv2d(16, 150, 3, groups=2),
    "Embedding": lambda lib: lib.nn.Embedding(150, 60, padding_idx=3),
    "MultiheadAttention": lambda lib: lib.nn.MultiheadAttention(60, 4),
    "MultiheadAttention of others": lambda lib: lib.nn.MultiheadAttention(60, 4, kdim=30, vdim=40),
    "LayerNorm": lambda lib: lib.nn.LayerNorm(8),
    "BatchNorm2d": lambda lib: lib.nn.BatchNorm2d(8),
}


@pytest.mark.parametrize("name", LARGE)
def test_first_values_have_torchs_distributions(torch, name):
    torch.manual_seed(0)
    ow.manual_seed(0)
    theirs, ours = LARGE[name](torch), LARGE[name](ow)
    for (name, tensor), (_, other) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        got, want = np.sort(tensor.numpy(), axis=None), np.sort(other.numpy(), axis=None)
        steps = (
            np.searchsorted(got, want, side="right") / got.size - np.searchsorted(want, want, side="right") / want.size
        )
        assert np.abs(steps).max() <= 1.63 * np.sqrt(2 / got.size), name  # Kolmogorov and Smirnov, at 1%
        assert (got == 0).sum() == (want == 0).sum(), name
        if name.endswith("weight") and "Embedding" not in repr(ours):  # uniform: the bounds
            assert got[-1] == pytest.approx(want[-1], rel=5e-3), name
            assert got[0] == pytest.approx(want[0], rel=5e-3), name
