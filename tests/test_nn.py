"""`nn.Module` and its containers: their parameters, modes and hooks, and how they train."""

import copy
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nn_problems import Net

import optirs_web as ow
from optirs_web import nn
from optirs_web.errors import ShapeError, UnsupportedError

NAMES = ["scale", "mask", "first.weight", "first.bias", "second.weight", "second.bias"]


def is_module(name):
    member = getattr(nn, name)
    return isinstance(member, type) and issubclass(member, nn.Module)


def names(pairs):
    return [name for name, _ in pairs]


# Help.


@pytest.mark.parametrize("name", [name for name in nn.__all__ if name != "Module" and is_module(name)])
def test_help_for_a_layer_does_not_describe_the_constructor_of_the_base_class(name):
    assert "subclass" not in pydoc.render_doc(getattr(nn, name).__init__)


# What a module finds.


def test_attributes_are_found_in_the_order_of_assignment(device):
    net = Net(device)
    assert names(net.named_parameters()) == ["scale", "first.weight", "first.bias", "second.bias"]
    assert names(net.named_parameters(recurse=False)) == ["scale"]
    assert names(net.named_parameters(prefix="net")) == [f"net.{name}" for name in names(net.named_parameters())]
    assert names(net.named_buffers()) == ["mask", "offset"]
    assert names(net.named_children()) == ["first", "second"]
    assert names(net.named_modules()) == ["", "first", "second"]
    assert list(net.modules()) == [net, net.first, net.second]
    assert list(net.state_dict()) == NAMES


def test_a_tied_parameter_is_one_parameter_under_two_names(device):
    net = Net(device)
    assert sum(param is net.first.weight for param in net.parameters()) == 1
    assert names(net.named_parameters(remove_duplicate=False)).count("second.weight") == 1
    net.load_state_dict({**net.state_dict(), "first.weight": [[7.0] * 3] * 3, "second.weight": [[8.0] * 3] * 3})
    assert net.first.weight.tolist() == [[8.0] * 3] * 3
    copied = copy.deepcopy(net)
    assert copied.second.weight is copied.first.weight is not net.first.weight
    restored = pickle.loads(pickle.dumps(net))
    assert restored.second.weight is restored.first.weight


def test_a_module_used_twice_is_found_once():
    layer = nn.Linear(2, 2, device="cpu")
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert names(net.named_parameters()) == ["0.weight", "0.bias"]
    assert names(net.named_modules()) == ["", "0", "1"]
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_what_an_attribute_was_before_is_forgotten():
    net = nn.Module()
    net.x = 3
    net.x = nn.Parameter([1.0], device="cpu")
    assert names(net.named_parameters()) == ["x"]
    net.x = nn.Identity()
    assert names(net.named_parameters()) == []
    assert names(net.named_children()) == ["x"]
    net.x = None
    assert net.x is None
    assert list(net.children()) == []
    del net.x
    with pytest.raises(AttributeError, match="no attribute 'x'"):
        _ = net.x


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda net: setattr(net, "scale", 3.0), TypeError, "is a parameter"),
        (lambda net: setattr(net, "first", 3.0), TypeError, "is a module"),
        (lambda net: setattr(net, "mask", 3.0), TypeError, "is a buffer"),
        (lambda net: net.register_parameter("w", ow.ones(1, device="cpu")), TypeError, "needs an optirs_web.Parameter"),
        (lambda net: net.register_buffer("b", 3.0), TypeError, "needs a tensor"),
        (lambda net: net.add_module("m", 3.0), TypeError, "needs a Module"),
        (lambda net: net.add_module("a.b", nn.Identity()), KeyError, "have no dot"),
        (lambda net: net.add_module("", nn.Identity()), KeyError, "must be non-empty"),
        (lambda net: net.register_parameter("forward", net.scale), KeyError, "already"),
        (lambda net: net.get_submodule("first.none"), AttributeError, "none"),
        (lambda net: net.get_parameter("first.in_features"), AttributeError, "not a parameter"),
        (lambda net: nn.Module()(1), NotImplementedError, "has no forward"),
    ],
)
def test_mistakes_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call(Net("cpu"))


CPU = {"device": "cpu"}


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2, **CPU), ShapeError, "2 groups do not divide 3 and 4"),
        (lambda: nn.Conv2d(3, 4, (1, 2, 3), **CPU), ShapeError, "kernel_size"),
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="reflect", **CPU), UnsupportedError, "'reflect' is not supported"),
        (
            lambda: nn.BatchNorm2d(3, **CPU)(ow.ones((2, 3), **CPU)),
            ShapeError,
            "BatchNorm2d of 3 channels needs 4 axes",
        ),
        (lambda: nn.BatchNorm1d(3, **CPU)(ow.ones((2, 4), **CPU)), ShapeError, "2 or 3 axes"),
        (lambda: nn.Embedding(3, 2, padding_idx=3, **CPU), ShapeError, "no row 3"),
        (lambda: nn.Dropout(1.5), ValueError, "p must be from 0 to 1"),
        (lambda: nn.MultiheadAttention(8, 3, **CPU), ShapeError, "3 heads do not divide"),
        (lambda: attend(attn_mask=[[0, 1], [1, 0]]), UnsupportedError, "bool or float32, not int32"),
        (lambda: attend(key_padding_mask=[[1]]), UnsupportedError, "bool or float32, not int32"),
        (lambda: nn.functional.pad(ow.ones((2,), **CPU), (1, 1, 1)), ShapeError, "two numbers"),
        (lambda: nn.functional.pad(ow.ones((2,), **CPU), (1, 1), "reflect"), UnsupportedError, "mode 'reflect'"),
        (lambda: nn.MSELoss(reduction="average")(ow.ones(2, **CPU), ow.ones(2, **CPU)), ValueError, "average"),
    ],
)
def test_mistakes_in_arguments_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call()


def attend(**masks):
    x = ow.ones((1, 2, 4), **CPU)
    return nn.MultiheadAttention(4, 2, batch_first=True, **CPU)(x, x, x, **masks)


def test_the_base_is_initialised_first():
    class Early(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter([1.0], device="cpu")

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\)"):
        Early()


def test_parts_are_found_by_path(device):
    net = nn.Sequential(Net(device))
    assert net.get_submodule("0.first") is net[0].first
    assert net.get_parameter("0.first.bias") is net[0].first.bias
    assert net.get_submodule("") is net


# Modes, gradients, hooks.


def test_modes_reach_every_module(device):
    net = nn.Sequential(nn.Dropout(), nn.ModuleList([nn.Dropout()]), nn.ModuleDict({"a": nn.Dropout()}))
    assert not net.eval().training
    assert not any(module.training for module in net.modules())
    assert all(module.training for module in net.train().modules())


def test_freezing_and_forgetting_gradients(device):
    net = Net(device)
    net.first.requires_grad_(False)
    net(ow.ones((2, 3), device=device)).sum().backward()
    assert net.first.weight.grad is None
    assert net.second.bias.grad is not None
    net.zero_grad(set_to_none=False)
    assert net.second.bias.grad.tolist() == [0.0] * 3
    net.zero_grad()
    assert all(param.grad is None for param in net.parameters())


def test_apply_visits_children_first(device):
    seen = []
    net = nn.Sequential(nn.Linear(1, 1, device=device), nn.Sequential(nn.ReLU()))
    assert net.apply(lambda module: seen.append(type(module).__name__)) is net
    assert seen == ["Linear", "ReLU", "Sequential", "Sequential"]


def test_hooks_see_and_change_what_goes_in_and_out():
    seen = []
    layer = nn.Identity()
    layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    layer.register_forward_pre_hook(lambda module, args: args[0] * 10, prepend=True)
    layer.register_forward_hook(lambda module, args, output: seen.append((module is layer, args, output)))
    handle = layer.register_forward_hook(lambda module, args, output: -output)
    assert layer(2) == -21
    assert seen == [(True, (21,), 21)]
    handle.remove()
    handle.remove()
    assert layer(2) == 21


def test_hooks_take_keyword_arguments_if_asked():
    class Adds(nn.Module):
        def forward(self, x, y=0):
            return x + y

    layer = Adds()
    with layer.register_forward_pre_hook(lambda module, args, kwargs: (args, {"y": 5}), with_kwargs=True):
        assert layer(1) == 6
    with layer.register_forward_hook(lambda module, args, kwargs, output: output * kwargs["y"], with_kwargs=True):
        assert layer(1, y=3) == 12
    wrong = layer.register_forward_pre_hook(lambda module, args, kwargs: 3, with_kwargs=True)
    with wrong, pytest.raises(TypeError, match="None or"):
        layer(1)
    assert layer(1) == 1


# Containers.


def test_a_sequence_is_edited_like_a_list(device):
    net = nn.Sequential(nn.Linear(2, 3, device=device), nn.ReLU())
    net.append(nn.Linear(3, 1, device=device))
    net.insert(1, nn.Identity())
    assert [type(module).__name__ for module in net] == ["Linear", "Identity", "ReLU", "Linear"]
    del net[1]
    net[1] = nn.Tanh()
    assert names(net.named_children()) == ["0", "1", "2"]
    assert isinstance(net[-2], nn.Tanh)
    assert isinstance(net[1:], nn.Sequential)
    assert len(net[1:]) == 2
    assert net(ow.ones((5, 2), device=device)).shape == (5, 1)
    with pytest.raises(IndexError, match="out of range"):
        net[3]


def test_a_sequence_may_have_names(device):
    net = nn.Sequential({"layer": nn.Linear(2, 3, device=device), "act": nn.ReLU()})
    assert list(net.state_dict()) == ["layer.weight", "layer.bias"]
    assert net.act is net[1]


def test_a_dict_of_modules_is_edited_like_a_dict():
    heads = nn.ModuleDict([("a", nn.ReLU())])
    heads["b"] = nn.Tanh()
    heads.update({"c": nn.Identity()})
    assert list(heads) == list(heads.keys()) == ["a", "b", "c"]
    assert len(heads) == 3
    assert "b" in heads
    assert isinstance(heads.pop("b"), nn.Tanh)
    del heads["c"]
    assert [(name, type(head)) for name, head in heads.items()] == [("a", nn.ReLU)]
    assert [type(head) for head in heads.values()] == [nn.ReLU]


# Training.


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_model_learns(device, is_compiled):
    ow.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16, device=device), nn.Tanh(), nn.Linear(16, 2, device=device))
    optimizer = ow.optim.Adam(net.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (64, 2)).astype(np.float32)
    labels = (points[:, 0] * points[:, 1] > 0).astype(np.int32)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device) if is_compiled else train_step
    x, y = ow.tensor(points, device=device), ow.tensor(labels, device=device)
    losses = [step(x, y) for _ in range(60)]
    assert losses[-1].item() < 0.3 * losses[0].item()


def test_the_page_about_modules_names_every_one():
    page = (Path(__file__).parent.parent / "docs" / "nn.md").read_text()
    assert [name for name in [*nn.__all__, *nn.init.__all__, *nn.functional.__all__] if f"`{name}`" not in page] == []


def test_gradients_are_clipped_by_torchs_name():
    assert nn.utils.clip_grad_norm_ is ow.optim.clip_grad_norm_


def test_the_library_needs_no_numpy_for_modules():
    program = "import sys; sys.modules['numpy'] = None; import optirs_web as ow; ow.nn.Sequential(ow.nn.ReLU())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_modules_run_in_the_browser_too(numerics):
    first, last = numerics("module_training", np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3))
    assert last < 0.5 * first


@pytest.mark.parametrize("sizes", [("3", 2), (3, -1), (3, 2.0), (None, 2)])
def test_a_linear_layer_names_the_sizes_that_it_refuses(sizes):
    message = f"in_features and out_features that are ints from 0, not {sizes[0]!r} and {sizes[1]!r}"
    with pytest.raises(ShapeError, match=re.escape(message)):
        nn.Linear(*sizes, device="cpu")
