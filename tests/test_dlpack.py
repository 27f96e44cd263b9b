"""Tensors go to other libraries and come from them by DLPack, as the array API standard says."""

import gc
import json
import weakref
from importlib.util import find_spec

import numpy as np
import pytest
from processes import run_python
from requirements import missing

import optirs_web as ow
from optirs_web.errors import UnsupportedError


class Exporter:
    """Has `__dlpack__` alone, and no other protocol."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.fixture
def cpu(open_device):
    return open_device("cpu")


# Out.


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "float16"])
def test_numpy_sees_the_memory_of_a_tensor(dtype, cpu):
    x = ow.tensor(np.arange(6).reshape(2, 3), device=cpu, dtype=dtype)
    seen = np.from_dlpack(x)
    assert seen.dtype == dtype
    assert seen.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.shares_memory(seen, np.from_dlpack(x))
    assert np.shares_memory(seen, np.from_dlpack(x[1:, ::2].T if dtype != "float16" else x))


def test_walks_are_shown_as_they_are_and_repeated_elements_copied(cpu):
    x = ow.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device=cpu)
    assert np.from_dlpack(x.T).strides == (4, 16)
    assert np.from_dlpack(x[1:, 1:3]).tolist() == [[5, 6], [9, 10]]
    repeated = ow.ops.broadcast_to(x[:1], (3, 4))
    assert np.from_dlpack(repeated).tolist() == [[0, 1, 2, 3]] * 3
    assert not np.shares_memory(np.from_dlpack(repeated), np.from_dlpack(x))


def test_what_is_of_another_size_or_empty_is_copied(cpu):
    assert np.from_dlpack(ow.tensor([True, False], device=cpu)).tolist() == [True, False]
    assert np.from_dlpack(ow.ones((0, 3), device=cpu)).shape == (0, 3)
    assert np.from_dlpack(ow.tensor(2.0, device=cpu)).shape == ()


def test_copies_are_made_when_asked_for_and_only_then(cpu):
    x = ow.tensor([1.0, 2.0], device=cpu)
    copied, seen = np.from_dlpack(x, copy=True), np.from_dlpack(x, copy=False)
    copied[0] = 5.0
    assert x.tolist() == [1.0, 2.0]
    seen[0] = 7.0
    assert x.tolist() == [7.0, 2.0]
    with pytest.raises(BufferError, match="without a copy"):
        np.from_dlpack(ow.tensor([True], device=cpu), copy=False)


def test_torch_and_jax_see_it(torch, optax, cpu):
    import jax  # which optax needs

    x = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device=cpu)
    shared = torch.from_dlpack(x)
    shared[0, 0] = 5.0
    assert (x @ x).tolist() == [[31.0, 18.0], [27.0, 22.0]]
    assert jax.dlpack.from_dlpack(x).tolist() == x.tolist()
    assert torch.from_dlpack(x.T).tolist() == [[5.0, 3.0], [2.0, 4.0]]


def test_the_pool_does_not_reuse_memory_that_somebody_sees(cpu):
    x = ow.tensor(np.arange(300, dtype=np.float32), device=cpu) + 1.0
    seen, buffer = np.from_dlpack(x), weakref.ref(x.view.buffer)
    del x
    gc.collect()
    others = [ow.ones((300,), device=cpu) * 2.0 for _ in range(20)]
    assert seen.tolist() == list(range(1, 301))
    assert [other.sum().item() for other in others] == [600.0] * 20
    assert buffer() is not None
    del seen
    gc.collect()
    assert buffer() is None


def test_replays_and_steps_are_seen_through_a_view(cpu):
    w = ow.Parameter([1.0, 2.0], device=cpu)
    optimizer = ow.optim.SGD([w], lr=1.0)

    def train_step():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=cpu)
    loss = np.from_dlpack(step())
    weights = np.from_dlpack(w)
    assert weights.tolist() == [-1.0, -2.0]
    step()
    cpu.synchronize()
    assert weights.tolist() == [1.0, 2.0]
    assert loss.tolist() == 5.0


def test_work_that_is_waiting_is_done_before(cpu):
    x = ow.ones((4,), device=cpu)
    for _ in range(3):
        x = x * 2.0
    assert np.from_dlpack(x).tolist() == [8.0] * 4


def test_a_device_memory_is_copied_to_the_host_or_refused(open_device):
    x = ow.tensor([1.0, 2.0], device=open_device("vulkan"))
    assert x.__dlpack_device__() == (7, 0)
    assert np.from_dlpack(x, device="cpu").tolist() == [1.0, 2.0]
    with pytest.raises(BufferError, match=r"'vulkan' is not in host memory.*x.numpy\(\)"):
        np.from_dlpack(x)
    with pytest.raises(BufferError, match="without a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)


def test_what_cannot_be_exported_is_refused(cpu):
    x = ow.tensor([1.0, 2.0], device=cpu)
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="no bfloat16"):
        np.from_dlpack(x.bfloat16())
    with pytest.raises(BufferError, match="no stream"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"not to \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))

    def export():
        np.from_dlpack(x * 2.0)

    with pytest.raises(UnsupportedError, match="inside a compiled step"):
        ow.compile(export, device=cpu)()


# In.


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"])
@pytest.mark.filterwarnings("ignore:.*data becomes")
def test_whatever_has_dlpack_makes_a_tensor(dtype, device):
    values = np.array([[0, 1], [1, 0]], dtype)
    made = ow.tensor(Exporter(values), device=device)
    assert made.dtype == ow.tensor(values, device=device).dtype
    assert made.tolist() == values.tolist()
    assert (
        ow.ops.matmul(ow.ones((1, 2), device=device), ow.tensor(Exporter(np.eye(2, dtype="f")), device=device)).size
        == 2
    )


def test_torch_tensors_with_a_history_and_of_bfloat16_make_tensors(torch, device):
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    assert ow.tensor(w, device=device).tolist() == [1.0, 2.0]
    assert ow.tensor(w * 2, device=device).tolist() == [2.0, 4.0]
    assert ow.tensor(w.bfloat16(), device=device).tolist() == [1.0, 2.0]
    assert ow.tensor(torch.eye(2).T[:, 1:], device=device).tolist() == [[0.0], [1.0]]
    for wrong in (torch.ones(2, device="meta"), torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.complex64)):
        with pytest.raises(UnsupportedError):
            ow.tensor(wrong, device=device)


def test_jax_arrays_make_tensors(optax, device):
    import jax.numpy  # which optax needs

    assert ow.tensor(jax.numpy.arange(3.0), device=device).tolist() == [0.0, 1.0, 2.0]
    assert ow.tensor(jax.numpy.arange(3, dtype="bfloat16"), device=device).tolist() == [0.0, 1.0, 2.0]


TENSORFLOW = """
import json

import numpy as np
import tensorflow as tf

import optirs_web as ow

given = tf.constant([[0.0, 1.0], [2.0, 3.0]])
made = [ow.tensor(tf.cast(given, dtype), device="cpu") for dtype in ("float32", "float16", "bfloat16", "int32", "bool")]
made += [ow.tensor(one, device="cpu") for one in (tf.Variable(given), tf.transpose(given), tf.zeros((0, 3)))]
print(json.dumps([[one.dtype.name, one.tolist()] for one in made]))

ours = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
shared = tf.experimental.dlpack.from_dlpack(ours.__dlpack__())
np.from_dlpack(ours)[0, 0] = 5.0
print(shared.numpy().tolist() == ours.tolist(), (given + ours).numpy().tolist())

for wrong in (tf.sparse.from_dense(given), tf.ragged.constant([[1.0], [1.0, 2.0]]), tf.constant(["text"])):
    try:
        ow.tensor(wrong, device="cpu")
    except ow.errors.UnsupportedError as error:
        print(error)
"""


@pytest.mark.needs("tensorflow")
def test_tensorflow_and_a_tensor_see_each_other():
    """In a process of its own: TensorFlow's LLVM and that of Mesa's software driver end one that has both."""
    if find_spec("tensorflow") is None:
        missing("tensorflow", "it is not installed")
    made, out, *refused = run_python(TENSORFLOW, TF_CPP_MIN_LOG_LEVEL=3)
    values, numbers = [[0.0, 1.0], [2.0, 3.0]], [[0, 1], [2, 3]]
    assert json.loads(made) == [
        *(["float32", values] for _ in range(3)),
        ["int32", numbers],
        ["bool", [[False, True], [True, True]]],
        ["float32", values],
        ["float32", [[0.0, 2.0], [1.0, 3.0]]],
        ["float32", []],
    ]
    assert out == "True [[5.0, 3.0], [5.0, 7.0]]"
    assert refused == [
        "a tensor cannot be made from SparseTensor",
        "a tensor cannot be made from RaggedTensor",
        "dtype 'object' is not supported; convert the data to float32 or int32",
    ]


def test_what_has_no_memory_is_named(torch, cpu):
    with pytest.raises(UnsupportedError, match=r"made from this object: .*__dlpack_device__"):
        ow.from_dlpack(object())
    with pytest.raises(UnsupportedError, match=r"made from this Tensor: .*meta"):
        ow.from_dlpack(torch.ones(3, device="meta"))


def test_a_failing_exporter_is_named(device):
    class Broken(Exporter):
        def __dlpack__(self, **_):
            raise BufferError("on the moon")

    with pytest.raises(UnsupportedError, match="cannot be made from this Broken: on the moon"):
        ow.tensor(Broken(np.ones(2)), device=device)
