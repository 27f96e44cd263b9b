"""NumPy in the page, which OPTIRS_PYODIDE_DIST brings: arrays go in and come out, and `cpu` is a device."""

import json
import textwrap

import pytest


@pytest.fixture
def python(browser_python):
    """`python(program)`: the value that the program leaves as JSON in `found`."""
    head = "import json\nimport numpy as np\nimport optirs_web as ow\n"
    return lambda program: json.loads(browser_python.run(f"{head}{textwrap.dedent(program)}\njson.dumps(found)"))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
def test_an_array_goes_in_and_comes_out_as_it_is(python, dtype):
    actual = python(
        f"""
        given = np.arange(6, dtype="{dtype}").reshape(2, 3)
        got = ow.tensor(given, device="webgpu").numpy()
        found = [got.dtype.name, got.tolist(), ow.tensor(given[:, ::2], device="webgpu").tolist()]
        """
    )
    assert actual == [dtype, [[0, 1, 2], [3, 4, 5]], [[0, 2], [3, 5]]]


def test_an_array_and_a_memoryview_of_it_are_the_same_tensor(python):
    actual = python(
        """
        given = np.linspace(0, 1, 12, dtype="float32").reshape(3, 4)
        found = ow.tensor(given, device="webgpu").tolist() == ow.tensor(given.data, device="webgpu").tolist()
        """
    )
    assert actual is True


def test_the_state_dict_has_arrays(python):
    actual = python(
        """
        w = ow.Parameter(np.ones(3, "float32"), device="webgpu")
        optimizer = ow.optim.AdamW([w])
        optimizer.step(grads=[np.ones(3, "float32")])
        found = [type(one).__name__ for one in optimizer.state_dict()["state"][0].values()]
        """
    )
    assert actual == ["ndarray"] * 3


def test_the_processor_is_a_device_too_and_agrees(python):
    actual = python(
        """
        def loss(device):
            w = ow.Parameter(np.full((4, 3), 0.5, "float32"), device=device)
            optimizer = ow.optim.AdamW([w], lr=0.1)
            for _ in range(5):
                optimizer.zero_grad()
                value = ow.cross_entropy(ow.ones((2, 4), device=device) @ w, [0, 2])
                value.backward()
                optimizer.step()
            return value.item()
        found = [loss("cpu"), loss("webgpu")]
        """
    )
    assert actual[0] == pytest.approx(actual[1], rel=1e-5)
