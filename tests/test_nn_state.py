"""The state of modules: state dicts, files, copies, buffers, statistics of batch norm, and transfers to a device."""

import asyncio
import copy
import pickle

import numpy as np
import pytest
from nn_problems import Net

import optirs_web as ow
from optirs_web import nn
from optirs_web.errors import CheckpointError, ShapeError, UnsupportedError

# State.


def test_a_state_dict_follows_training(device):
    layer = nn.Linear(2, 1, device=device)
    optimizer = ow.optim.SGD(layer.parameters(), lr=1.0)
    state = layer.state_dict()
    kept = copy.deepcopy(state)
    optimizer.step(grads=[[[1.0, 1.0]], [1.0]])
    assert state["weight"].tolist() == layer.weight.tolist() != kept["weight"].tolist()
    assert not state["weight"].requires_grad
    assert layer.state_dict(keep_vars=True)["weight"] is layer.weight


def test_loading_is_strict_and_happens_as_a_whole(device):
    net, before = Net(device), None
    state = {name: tensor.numpy() + 1.0 for name, tensor in net.state_dict().items()}
    before = {name: tensor.tolist() for name, tensor in net.state_dict().items()}
    wrong = {**state, "first.bias": np.zeros(4), "other": 1.0}
    del wrong["mask"]
    with pytest.raises(CheckpointError) as raised:
        net.load_state_dict(wrong)
    for part in ("first.bias is float32 of shape (4,)", "mask is missing", "other is not in the module"):
        assert part in str(raised.value)
    with pytest.raises(CheckpointError, match="shape"):
        net.load_state_dict(wrong, strict=False)
    assert {name: tensor.tolist() for name, tensor in net.state_dict().items()} == before
    del wrong["first.bias"]
    actual = net.load_state_dict(wrong, strict=False)
    assert actual.missing_keys == ["mask", "first.bias"]
    assert actual.unexpected_keys == ["other"]
    assert net.scale.tolist() == [3.0]


def test_loading_writes_where_an_optimizer_and_a_compiled_step_look(device):
    layer = nn.Linear(1, 1, bias=False, device=device)
    optimizer = ow.optim.SGD(layer.parameters(), lr=1.0)

    def train_step(x):
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device)
    step([[2.0]])
    layer.load_state_dict({"weight": [[10.0]]})
    assert step([[2.0]]).item() == 20.0
    assert layer.weight.tolist() == [[8.0]]


def test_a_module_loads_from_another_one(device):
    optimizer, other = Net(device), Net(device)
    other.load_state_dict(optimizer.state_dict())
    x = ow.ones((2, 3), device=device)
    assert other(x).tolist() == optimizer(x).tolist()


def test_safetensors_hold_a_state_dict(device, tmp_path):
    net = nn.Sequential(Net(device), nn.BatchNorm1d(3, device=device))
    path = tmp_path / "net.safetensors"
    ow.interop.safetensors.save_state_dict(path, net.state_dict())
    other = nn.Sequential(Net(device), nn.BatchNorm1d(3, device=device))
    other.load_state_dict(ow.interop.safetensors.load_state_dict(path))
    same = [param.tolist() == two.tolist() for param, two in zip(net.parameters(), other.parameters(), strict=True)]
    assert all(same)


def test_a_file_can_be_made_without_waiting(device):
    state = nn.BatchNorm1d(3, device=device).state_dict()
    files = ow.interop.safetensors
    assert asyncio.run(files.dump_state_dict_async(state)) == files.dump_state_dict(state)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16", "F64", "I64", "U8", "BOOL"])
def test_safetensors_of_other_types_are_converted(dtype):
    values = np.array([[1.0, 0.0, 1.0]], np.float32)
    raw = {"F16": np.float16, "F64": np.float64, "I64": np.int64, "U8": np.uint8, "BOOL": bool}.get(dtype, np.float32)
    content = values.astype(raw).tobytes()
    if dtype == "BF16":
        content = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    entry = ow.interop.safetensors.Entry(dtype, (1, 3), memoryview(content))
    file = b"".join(ow.interop.safetensors.parts({"x": entry}, {}))
    loaded = ow.tensor(ow.interop.safetensors.load_state_dict(file)["x"], device="cpu")
    assert loaded.shape == (1, 3)
    assert loaded.tolist() == [[1, 0, 1]]
    assert loaded.dtype == {"F": "float32", "B": "float32" if dtype == "BF16" else "bool"}.get(dtype[0], "int32")


def test_copies_are_independent_and_stay_frozen(device):
    net = Net(device).eval()
    net.scale.requires_grad = False
    x = ow.ones((2, 3), device=device)
    expected = net(x).tolist()
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert copied(x).tolist() == expected
        assert not copied.training
        assert not copied.scale.requires_grad
        assert copied.first.weight.requires_grad
        assert copied.mask.persistent
        assert not copied.offset.persistent
        copied.scale.assign([0.0])
        copied.mask.assign([0.0, 0.0, 0.0])
    assert net(x).tolist() == expected


# Checkpoints.


def test_a_checkpoint_has_the_buffers_of_a_module(device, tmp_path):
    net = nn.Sequential(nn.Linear(2, 3, device=device), nn.BatchNorm1d(3, device=device))
    net.register_buffer("mask", ow.tensor([True, False], device=device))
    optimizer = ow.optim.Adam(net.parameters())
    net(ow.tensor([[1.0, 2.0], [3.0, 5.0]], device=device)).sum().backward()
    optimizer.step()
    ow.save_checkpoint(tmp_path / "net", net.state_dict(keep_vars=True), optimizer)
    other = copy.deepcopy(net)
    for tensor in [*other.parameters(), *other.buffers()]:
        tensor.assign(ow.zeros(tensor.shape, device=device, dtype=tensor.dtype))
    ow.load_checkpoint(tmp_path / "net", other.state_dict(keep_vars=True), ow.optim.Adam(other.parameters()))
    for (name, tensor), two in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        assert tensor.tolist() == two.tolist(), name


# Devices.


def test_a_module_moves_as_it_is(open_device):
    cpu, vulkan = open_device("cpu"), open_device("vulkan")
    net = Net(cpu)
    x = ow.tensor([[1.0, 2.0, 3.0]], device=cpu)
    expected = net(x).tolist()
    net(x).sum().backward()
    grads = [param.grad.tolist() for param in net.parameters()]
    before = [*net.parameters(), *net.buffers()]
    assert net.to("vulkan") is net
    after = [*net.parameters(), *net.buffers()]
    assert all(one is other and one.device is vulkan for one, other in zip(before, after, strict=True))
    assert [param.grad.tolist() for param in net.parameters()] == grads
    assert net(ow.tensor(x, device=vulkan)).tolist()[0] == pytest.approx(expected[0])
    ow.optim.SGD(net.parameters(), lr=0.1).step()
    assert net.scale.device is vulkan


def test_a_compiled_step_follows_a_module_that_moves(open_device):
    cpu, vulkan = open_device("cpu"), open_device("vulkan")
    layer = nn.Linear(1, 1, bias=False, device=cpu)
    layer.load_state_dict({"weight": [[3.0]]})
    step = ow.compile(layer)
    assert step(ow.tensor([[2.0]], device=cpu)).tolist() == [[6.0]]
    layer.to(vulkan)
    assert step(ow.tensor([[2.0]], device=vulkan)).tolist() == [[6.0]]
    layer.to(cpu)
    layer.load_state_dict({"weight": [[4.0]]})
    assert step(ow.tensor([[2.0]], device=cpu)).tolist() == [[8.0]]


def test_parameters_of_an_optimizer_stay_where_they_are(open_device):
    open_device("vulkan")
    net = Net("cpu")
    ow.optim.SGD([net.second.bias], lr=0.1)
    with pytest.raises(UnsupportedError, match=r"'second.bias' is in an optimizer's arena.*deepcopy"):
        net.to("vulkan")
    assert net.scale.device.name == "cpu"
    assert copy.deepcopy(net).to("vulkan").scale.device.name == "vulkan"
    assert net.to("cpu") is net


def test_buffers_are_in_snapshots():
    device = ow.device("cpu")
    layer = nn.BatchNorm1d(1, device=device)
    layer(ow.tensor([[1.0], [3.0]], device=device))
    ow.snapshot(device)
    kept = [buffer.tolist() for buffer in layer.buffers()]
    layer(ow.tensor([[5.0], [9.0]], device=device))
    assert [buffer.tolist() for buffer in layer.buffers()] != kept
    for buffer in layer.buffers():
        buffer.revive(device)
    assert [buffer.tolist() for buffer in layer.buffers()] == kept


# Buffers.


def test_a_buffer_keeps_its_place(device):
    net = Net(device)
    buffer, place = net.mask, net.mask.view
    net.mask = net.mask * 3.0
    assert net.mask is buffer
    assert net.mask.view == place
    assert net.mask.tolist() == [3.0, 0.0, 3.0]
    net.mask = ow.ones((1,), device=device)
    assert net.mask.shape == (1,)
    assert "mask" in net.state_dict()
    net.mask = None
    assert "mask" not in net.state_dict()
    with pytest.raises(ShapeError, match="buffer of shape"):
        net.offset.assign([1.0])


def test_a_compiled_step_goes_on_with_a_buffer(device):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", ow.zeros((1,), device=device))

        def forward(self, x):
            self.count = self.count + 1.0
            return x * self.count

    module = Counts()
    step = ow.compile(lambda x: module(x), device=device)
    assert [step([1.0]).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert module(ow.ones((1,), device=device)).item() == 4.0
    assert step([1.0]).item() == 5.0


def test_a_buffer_that_changed_cannot_be_differentiated_through(device):
    x = ow.ones((3,), device=device, requires_grad=True)
    net = Net(device)
    y = (x * net.mask).sum()
    net.mask.assign([0.0, 0.0, 0.0])
    with pytest.raises(UnsupportedError, match="was changed"):
        y.backward()


# Batch norm.


def test_batch_norm_counts_its_batches_in_a_compiled_step_too(device):
    batches = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
    eager, compiled = nn.BatchNorm1d(3, device=device), nn.BatchNorm1d(3, device=device)
    step = ow.compile(lambda x: compiled(x), device=device)
    for batch in batches:
        assert np.allclose(eager(ow.tensor(batch, device=device)).numpy(), step(batch).numpy(), atol=1e-6)
    for buffer, other in zip(eager.buffers(), compiled.buffers(), strict=True):
        assert np.allclose(buffer.numpy(), other.numpy(), atol=1e-6)
    assert eager.num_batches_tracked.item() == compiled.num_batches_tracked.item() == 4


def test_batch_norm_without_momentum_is_the_mean_over_batches(device):
    batches = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
    layer = nn.BatchNorm1d(3, momentum=None, device=device)
    for batch in batches:
        layer(ow.tensor(batch, device=device))
    assert np.allclose(layer.running_mean.numpy(), batches.mean(axis=(0, 1)), atol=1e-6)
    assert np.allclose(layer.running_var.numpy(), batches.var(axis=1, ddof=1).mean(axis=0), atol=1e-6)
    layer.reset_running_stats()
    assert layer.running_var.tolist() == [1.0] * 3
    assert layer.num_batches_tracked.item() == 0


def test_early_batch_norms_have_no_count(device):
    layer = nn.BatchNorm1d(3, device=device)
    state = {name: one for name, one in layer.state_dict().items() if name != "num_batches_tracked"}
    assert layer.load_state_dict(state).missing_keys == []
