"""Tensors: data in and out, constants, random numbers."""

import array
import math
import struct
from types import SimpleNamespace

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.interop import safetensors
from optirs_web.optim import schedules
from optirs_web.training import Config


@pytest.mark.parametrize(
    "data",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.array(3.5, np.float32),
        np.zeros((2, 0), np.float32),
    ],
    ids=["float32", "int32", "uint32", "strided", "column-major", "no axes", "empty"],
)
def test_arrays_come_back_as_they_went_in(device, data):
    got = ow.tensor(data, device=device)
    assert got.dtype.name == data.dtype.name
    np.testing.assert_array_equal(got.numpy(), data)
    assert got.numpy().dtype == data.dtype
    assert got.tolist() == data.tolist()


def test_the_buffer_protocol_goes_in_and_comes_out(device):
    values = array.array("f", [1.0, 2.0, 3.0, 4.0])
    shaped = memoryview(values).cast("B").cast("f", [2, 2])
    got = ow.tensor(shaped, device=device)
    assert got.shape == (2, 2)
    assert got.read().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert ow.tensor(bytearray(b"\x01\x02"), device=device).tolist() == [1, 2]


def test_a_tensor_is_a_copy(device):
    values = np.ones(3, np.float32)
    got = ow.tensor(values, device=device)
    values[:] = 7
    assert got.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("data", "dtype", "want"),
    [
        (2.5, "float32", 2.5),
        (3, "int32", 3),
        (True, "bool", True),
        ([1, 2.0], "float32", [1.0, 2.0]),
        ([[1], [2]], "int32", [[1], [2]]),
        ([], "float32", []),
    ],
)
def test_numbers_and_nested_lists(device, data, dtype, want):
    got = ow.tensor(data, device=device)
    assert (got.dtype.name, got.tolist()) == (dtype, want)


def test_wide_types_are_narrowed_with_one_warning(device, monkeypatch):
    monkeypatch.setattr("optirs_web.hostdata._warned", set())
    with pytest.warns(UserWarning, match="float64 data becomes float32"):
        got = ow.tensor(np.array([0.1]), device=device)
    assert got.dtype.name == "float32"
    ow.tensor(np.array([0.1]), device=device)
    with pytest.warns(UserWarning, match="int64 data becomes int32"):
        ow.tensor(np.array([1]), device=device)
    assert ow.tensor(np.array([1.0]), device=device, dtype="float32").item() == 1.0


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float32, "float32"),
        (np.dtype("int32"), "int32"),
        (np.uint32, "uint32"),
        (np.bool_, "bool"),
        (np.float16, "float16"),
        (float, "float32"),
        (int, "int32"),
        (bool, "bool"),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: ow.tensor(np.ones(2, np.float32), device="cpu", dtype=dtype),
        lambda dtype: ow.zeros((2,), device="cpu", dtype=dtype),
        lambda dtype: ow.ones((2,), device="cpu").astype(dtype),
        lambda dtype: ow.ones((2,), device="cpu").to(dtype),
    ],
    ids=["tensor", "zeros", "astype", "to"],
)
def test_a_dtype_may_be_a_type_of_numpy_or_python(make, dtype, name):
    assert make(dtype).dtype.name == name


@pytest.mark.parametrize("dtype", [np.float64, complex, dict])
def test_a_type_that_no_tensor_has_is_named(dtype):
    with pytest.raises(UnsupportedError, match=f"dtype '{dtype.__name__}' is not supported; use one of float32"):
        ow.tensor([1.0], device="cpu", dtype=dtype)
    with pytest.raises(UnsupportedError, match=f"dtype '{dtype.__name__}' is not supported; use one of float32"):
        ow.ones((1,), device="cpu").to(dtype)


@pytest.mark.parametrize(
    ("data", "dtype", "error", "message"),
    [
        (np.array([2**40]), "int32", OverflowError, "does not fit int32"),
        (np.array([1e300]), "float32", OverflowError, "does not fit float32"),
        ([1e300], None, OverflowError, "does not fit float32"),
        ([2**40], None, OverflowError, "does not fit int32"),
        (np.array([0.5]), "int32", OverflowError, "does not fit int32"),
        ([[1], [1, 2]], None, ShapeError, "ragged"),
        ([[1], 2], None, ShapeError, "ragged"),
        (["a"], None, UnsupportedError, "made from str"),
        (np.array(["a"]), None, UnsupportedError, "dtype '<U1'|dtype 'str"),
        (np.array([1j]), None, UnsupportedError, "complex128"),
        ([1.0], "float8", UnsupportedError, "dtype 'float8' is not supported"),
        (object(), None, UnsupportedError, "made from object"),
        ({"a": 1}, None, UnsupportedError, "made from dict"),
        (None, None, UnsupportedError, "made from NoneType"),
    ],
)
def test_what_does_not_fit_is_refused(data, dtype, error, message):
    with pytest.raises(error, match=message):
        ow.tensor(data, device="cpu", dtype=dtype)


ODD_BOOLS = np.array([2, 3, 0, 255, 1], np.uint8)
_HEADER = b'{"x":{"dtype":"BOOL","shape":[5],"data_offsets":[0,5]}}'


@pytest.mark.parametrize(
    "data",
    [
        ODD_BOOLS.astype(np.int64),
        ODD_BOOLS.astype(np.float64) / 7,
        ODD_BOOLS.tolist(),
        ODD_BOOLS.view(bool),
        np.repeat(ODD_BOOLS, 2).view(bool)[::2],
        memoryview(ODD_BOOLS.tobytes()),
        memoryview(ODD_BOOLS.tobytes()).cast("?"),
        SimpleNamespace(__dlpack__=None, __array__=lambda *_, **__: ODD_BOOLS.view(bool)),
        safetensors.load_state_dict(len(_HEADER).to_bytes(8, "little") + _HEADER + ODD_BOOLS.tobytes())["x"],
    ],
    ids=["integers", "floats", "list", "bools", "every second", "bytes", "memoryview", "DLPack", "safetensors"],
)
def test_whatever_is_not_0_is_true(device, data):
    x = ow.tensor(data, device=device, dtype="bool")
    assert x.tolist() == [True, True, False, True, True]
    assert x.astype("float32").sum().item() == 4
    assert (x == ow.tensor([True] * 5, device=device)).tolist() == x.tolist()


def test_a_bool_tensor_full_of_2_is_true(device):
    assert ow.full((2,), 2, device=device, dtype="bool").astype("float32").tolist() == [1.0, 1.0]


def test_bools_that_become_numbers_are_0_and_1(device):
    assert ow.tensor(ODD_BOOLS.view(bool), device=device, dtype="float32").tolist() == [1.0, 1.0, 0.0, 1.0, 1.0]


def test_infinities_and_nan_pass_unchanged(device):
    values = np.array([np.inf, -np.inf, np.nan, -0.0, 1e-45], np.float32)
    got = ow.tensor(values, device=device).numpy()
    np.testing.assert_array_equal(got.view(np.uint32), values.view(np.uint32))


def test_constants(device):
    assert ow.zeros((2, 2), device=device).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert ow.ones(3, device=device).tolist() == [1.0, 1.0, 1.0]
    assert ow.full((), 7.5, device=device).item() == 7.5
    assert ow.full((2,), -3, device=device, dtype="int32").tolist() == [-3, -3]
    assert ow.arange(4, device=device).tolist() == [0, 1, 2, 3]


def philox_4x32_10(counter, key):
    """Salmon et al. 2011, in Python's integers."""
    c, k, mask = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & mask, (first >> 32) ^ c[3] ^ k[1], first & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def test_the_philox_reference_gives_the_authors_known_answers():
    assert philox_4x32_10([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox_4x32_10([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2) == [
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    ]


def ulps(got, want):
    return np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)


def test_random_numbers_are_philox_by_counter(numerics):
    seed = 0x1234_5678_9ABC_DEF0
    key = (seed & 0xFFFFFFFF, seed >> 32)
    words, normal = (
        np.array([philox_4x32_10([index, 0, kind, 0], key) for index in range(2000)], np.uint64) for kind in (0, 1)
    )
    uniform, normals = numerics("random", seed, 2000)
    np.testing.assert_array_equal(uniform, ((words[:, 0] >> np.uint64(8)) * 2.0**-24).astype(np.float32))
    radius = ((normal[:, 0] >> np.uint64(8)) + np.uint64(1)).astype(np.float64) * 2.0**-24
    angle = np.float32(2 * math.pi) * ((normal[:, 1] >> np.uint64(8)) * 2.0**-24).astype(np.float32)
    want = np.sqrt(-2 * np.log(radius)) * np.cos(angle.astype(np.float64))
    assert ulps(normals.astype(np.float64), want).max() <= 8


def test_normals_are_the_same_on_every_device_to_4_ulp(open_device):
    first, second = (ow.randn((100_000,), device=open_device(name), seed=3).numpy() for name in ("cpu", "vulkan"))
    assert ulps(first.astype(np.float64), second.astype(np.float64)).max() <= 4


def test_normals_are_normal(device):
    values = ow.randn((200_000,), device=device, seed=1).numpy().astype(np.float64)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((values**4).mean() - 3) < 0.1


def test_the_seed_decides_the_sequence(device):
    ow.manual_seed(5)
    first = [ow.randn((3,), device=device).tolist() for _ in range(2)]
    ow.manual_seed(5)
    second = [ow.randn((3,), device=device).tolist() for _ in range(2)]
    assert first == second
    assert first[0] != first[1]
    with pytest.raises(ValueError, match="a seed must be an integer"):
        ow.manual_seed(-1)


SEEDS = {
    "manual_seed": ow.manual_seed,
    "rand": lambda seed: ow.rand((2,), device="cpu", seed=seed),
    "randn": lambda seed: ow.randn((2,), device="cpu", seed=seed),
    "set_rng_state": lambda seed: ow.ops.set_rng_state({"seed": seed, "stream": 0, "replays": {}}),
    "DataLoader": lambda seed: ow.nn.DataLoader([1.0], seed=seed),
    "SophiaH": lambda seed: ow.optim.SophiaH([ow.Parameter([1.0], device="cpu")], hvp=lambda *_: None, seed=seed),
    "APOLLO": lambda seed: ow.optim.APOLLO([ow.Parameter([[1.0]], device="cpu")], rank=1, seed=seed),
    "add_noise": lambda seed: ow.optim.transforms.add_noise(0.1, seed=seed),
    "spectral": lambda seed: ow.optim.projections.spectral(1.0, seed=seed),
    "noisy": lambda seed: schedules.noisy(schedules.constant_schedule(1.0), "uniform", 0.1, seed=seed),
    "Config": lambda seed: Config(seed=seed).checked(),
}


@pytest.mark.parametrize(
    "seed",
    [math.nan, math.inf, 0.5, 2.0, -1, 1 << 64, 10**5000, True, "1", [1]],
    ids=lambda seed: repr(seed)[:8] if seed != 10**5000 else "10**5000",
)
@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_is_an_integer(name, seed):
    before = ow.ops.get_rng_state()
    with pytest.raises(
        (TypeError, ValueError), match=r"a seed must be an integer from 0 to 2\*\*|Invalid seed value|get_rng_state"
    ):
        SEEDS[name](seed)
    assert ow.ops.get_rng_state() == before


@pytest.mark.parametrize("seed", [np.int64(3), np.uint8(3)], ids=["int64", "uint8"])
def test_integers_of_numpy_are_seeds(seed):
    assert ow.rand((2,), device="cpu", seed=seed).tolist() == ow.rand((2,), device="cpu", seed=3).tolist()


def test_moving_between_devices(open_device):
    on_cpu = ow.tensor([[1.0, 2.0]], device="cpu")
    on_gpu = ow.tensor(on_cpu, device=open_device("vulkan"))
    assert on_gpu.device.name == "vulkan"
    assert ow.tensor(on_gpu, device="cpu").tolist() == [[1.0, 2.0]]


def test_a_typed_memoryview_has_the_tensors_shape(device):
    view = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device=device).read()
    assert (view.format, view.shape) == ("f", (2, 2))
    assert bytes(view) == struct.pack("4f", 1, 2, 3, 4)


def test_a_function_of_ops_is_named_to_who_looks_for_it_in_the_package():
    assert ow.ops.exp(ow.tensor([0.0], device="cpu")).tolist() == [1]
    with pytest.raises(AttributeError, match=r"no attribute 'exp'; optirs_web\.ops has 'exp'"):
        _ = ow.exp
    with pytest.raises(AttributeError, match=r"no attribute 'no_such_name'$"):
        _ = ow.no_such_name
