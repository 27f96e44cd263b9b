"""Our optimizers over torch parameters on a GPU of NVIDIA: one memory, and the order of both libraries' streams.

Without such a GPU the driver is in software (`software_cuda`), whose memory is the host's and which runs nothing before
somebody waits. Tensors of torch on the processor stand there for those on the GPU: they lie over our memory as those
would, and since torch has done at once what it does, to come after our work is to wait for it. Work that torch is not
told to come after is not done yet, as on a GPU.
"""

import ctypes
import weakref

import numpy as np
import pytest
import software_cuda
from requirements import missing
from torch_models import mlp

import optirs_web as ow
from optirs_web import dlpack_capsules
from optirs_web.errors import DeviceNotAvailableError
from optirs_web.interop import torch_memory

DEFAULT = 1  # CUDA's default stream


@pytest.fixture
def to_gpu(torch, cuda, monkeypatch):
    """Return a function that moves a model or a tensor of torch to the GPU of the device `cuda`."""
    if torch.cuda.is_available():
        return lambda one: one.cuda()
    if "software" not in cuda.info.description.lower():
        missing("software-cuda", "NVIDIA's own driver is there, and torch is installed without CUDA")

    def shown(ours):
        described, end = dlpack_capsules.consumed(ours.__dlpack__(stream=DEFAULT))
        cuda.synchronize()
        memory = (ctypes.c_float * ours.size).from_address(described.address)
        made = torch.frombuffer(memory, dtype=torch.float32).view(ours.shape)
        weakref.finalize(made, end)
        return made

    def give(device):
        give_in_order(device)
        device.synchronize()

    give_in_order = torch_memory.give
    monkeypatch.setattr(torch_memory, "is_on_gpu", lambda theirs: True)
    monkeypatch.setattr(torch_memory, "from_dlpack", lambda theirs: ow.tensor(theirs.numpy().copy(), device=cuda))
    monkeypatch.setattr(torch_memory, "shown", shown)
    monkeypatch.setattr(torch_memory, "current_stream", lambda number: DEFAULT)
    monkeypatch.setattr(torch_memory, "give", give)
    return lambda one: one


def trained(torch, to_gpu, make, steps=10, **options):
    """The losses of a small model, and its parameters in the end."""
    model = to_gpu(mlp(torch))
    optimizer = make(model.parameters(), **options)
    x, labels = to_gpu(torch.rand(16, 64)), to_gpu(torch.arange(16) % 10)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return model, optimizer, losses


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdamW", {"lr": 1e-2, "weight_decay": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        ("LBFGS", {"lr": 0.5, "max_iter": 3}),
    ],
)
def test_one_line_changes_and_the_losses_stay(name, options, torch, to_gpu):
    _, _, expected = trained(torch, to_gpu, getattr(torch.optim, name), **options)
    _, _, losses = trained(torch, to_gpu, getattr(ow.interop.torch, name), **options)
    assert losses == pytest.approx(expected, abs=1e-5)
    assert losses[-1] < 0.9 * losses[0]


def test_parameters_and_gradients_lie_in_memory_of_the_device(torch, to_gpu):
    model, optimizer, _ = trained(torch, to_gpu, ow.interop.torch.AdamW, steps=1)
    for param, shared in zip(model.parameters(), optimizer._shared, strict=True):
        assert shared.ours.device is ow.device("cuda")
        assert param.data_ptr() == shared.ours.view.buffer.handle.address + shared.ours.view.offset
        np.testing.assert_array_equal(shared.ours.numpy(), param.detach().cpu().numpy())
    optimizer.zero_grad(set_to_none=False)
    before = ow.device("cuda").stats.copy()
    for _ in range(3):
        for param in model.parameters():
            param.grad += 0.25
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    did = ow.device("cuda").stats - before
    assert (did.bytes_up, did.bytes_down) == (0, 0)


def test_what_torch_writes_between_steps_is_stepped(torch, to_gpu):
    w = torch.nn.Parameter(to_gpu(torch.tensor([1.0, 2.0])))
    optimizer = ow.interop.torch.SGD([w], lr=0.5)
    w.grad = to_gpu(torch.ones(2))
    optimizer.step()
    with torch.no_grad():
        w.mul_(10.0)
    optimizer.step()
    assert w.tolist() == [4.5, 14.5]
    w.data = to_gpu(torch.tensor([7.0, 8.0]))
    optimizer.step()
    assert w.tolist() == [6.5, 7.5]


def test_functions_and_rows_of_gradients_stay_on_the_gpu(torch, to_gpu):
    w = torch.nn.Parameter(to_gpu(torch.tensor([1.0, -2.0])))
    optimizer = ow.interop.torch.NewtonCG([w], lr=1.0, hvp=lambda vectors: [4.0 * vector for vector in vectors])

    def closure():
        optimizer.zero_grad()
        loss = 2.0 * w.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert w.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    table = to_gpu(torch.nn.Embedding(6, 2, sparse=True))
    before = table.weight.detach().clone()
    rows = ow.interop.torch.SGD(table.parameters(), lr=1.0)
    table(to_gpu(torch.tensor([4, 1, 4]))).sum().backward()
    rows.step()
    moved = (before - table.weight.detach()).sum(1).tolist()
    assert moved == pytest.approx([0.0, 2.0, 0.0, 0.0, 4.0, 0.0], abs=1e-5)


def test_each_library_comes_after_the_other_and_neither_waits(cuda, monkeypatch):
    driver = software_cuda.install()
    if driver is None:
        missing("software-cuda", "NVIDIA's own driver is there, which does not tell what it did")
    monkeypatch.setattr(torch_memory, "current_stream", lambda number: DEFAULT)
    x = ow.Parameter([1.0, 2.0], device=cuda)
    described, end = dlpack_capsules.consumed(x.__dlpack__(stream=DEFAULT))
    cuda.synchronize()
    seen = (ctypes.c_float * 2).from_address(described.address)
    before = driver.count("cuStreamWaitEvent"), driver.count("events")
    x.assign(ow.zeros((2,), device=cuda))
    torch_memory.give(cuda)
    torch_memory.take(cuda)
    assert (driver.count("cuStreamWaitEvent"), driver.count("events")) == (before[0] + 2, before[1])
    assert list(seen) == [1.0, 2.0]
    cuda.synchronize()
    assert list(seen) == [0.0, 0.0]
    end()


def test_without_the_device_it_says_what_is_missing(torch, monkeypatch):
    monkeypatch.setattr(torch_memory, "is_on_gpu", lambda theirs: True)
    monkeypatch.setattr(torch_memory, "from_dlpack", lambda theirs: ow.ones((2,), device="cuda:7"))
    with pytest.raises(DeviceNotAvailableError, match="device 'cuda:7' is not available: "):
        ow.interop.torch.SGD([torch.nn.Parameter(torch.ones(2))])
