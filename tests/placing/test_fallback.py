"""Operations beyond the limits of a device run on the other one under a policy, with one warning."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import DeviceLimitError, OutOfDeviceMemoryError, UnsupportedError
from optirs_web.placing import fallback

LIMIT = 2048


@pytest.fixture
def vulkan(open_device, monkeypatch):
    """Shows kernels half of what the queries of one product need, which are not cut where attention is by tiles."""
    vulkan = open_device("vulkan")
    monkeypatch.setattr(vulkan, "capabilities", replace(vulkan.capabilities, max_binding_bytes=LIMIT, quads=False))
    monkeypatch.setattr(fallback, "_warned", set())
    return vulkan


def _queries(device):
    values = np.random.default_rng(0).standard_normal((1, 64, 16)).astype(np.float32)
    return ow.tensor(values, device=device, requires_grad=True)


def _attention(q):
    return ow.ops.scaled_dot_product_attention(q, q, q)


def _in_float64(q):
    scores = q @ q.swapaxes(1, 2) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ q


@pytest.mark.parametrize(("policy", "where"), [("gpu", "vulkan"), ("auto", "cpu"), ("minimize_transfers", "cpu")])
def test_it_runs_on_the_processor_and_the_result_is_where_the_policy_says(policy, where, vulkan):
    q = _queries(vulkan)
    with ow.placement(policy, gpu=vulkan):
        with pytest.warns(UserWarning, match="ran on 'cpu', not on 'vulkan'") as caught:
            result = _attention(q)
        (result * result).sum().backward()
    (warning,) = caught
    for part in ("scaled_dot_product_attention", "(1, 64, 16)", "'cpu'", "'vulkan'", "4,096", "2,048"):
        assert part in str(warning.message)
    assert warning.filename == __file__
    assert (result.device.name, q.grad.device.name) == (where, "vulkan")
    values = q.numpy().astype(np.float64)
    np.testing.assert_allclose(result.numpy(), _in_float64(values), atol=1e-5)
    here = _queries("cpu")
    (_attention(here) * _attention(here)).sum().backward()
    np.testing.assert_allclose(q.grad.numpy(), here.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("policy", ["auto", "gpu", "minimize_transfers"])
def test_the_second_time_there_is_no_warning(policy, vulkan):
    q = _queries(vulkan)
    with ow.placement(policy, gpu=vulkan):
        with pytest.warns(UserWarning, match="ran on 'cpu'"):
            _attention(q)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _attention(q)


def test_under_cpu_nothing_is_asked_of_the_gpu(vulkan):
    with ow.placement("cpu"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _attention(_queries(vulkan)).device.name == "cpu"


def test_without_a_policy_the_error_names_limit_and_size_and_what_to_do(vulkan):
    with pytest.raises(DeviceLimitError, match=r"4,096 bytes .*2,048.*Split.*another device.*placement\(\"auto\"\)"):
        _attention(_queries(vulkan))


def test_a_tensor_that_the_device_cannot_hold_stays_on_the_processor(vulkan, monkeypatch):
    monkeypatch.setattr(vulkan, "capabilities", replace(vulkan.capabilities, max_buffer_bytes=8192))
    x = ow.ones((60, 1), device=vulkan)
    with pytest.raises(OutOfDeviceMemoryError):
        x @ x.T
    with ow.placement("gpu", gpu=vulkan), pytest.warns(UserWarning, match=r"matmul of \(60, 1\).*ran on 'cpu'"):
        result = x @ x.T
    assert result.device.name == "cpu"
    assert (result.numpy() == 1.0).all()


def test_mistakes_are_errors_under_a_policy_too(vulkan):
    with ow.placement("gpu", gpu=vulkan), pytest.raises(UnsupportedError, match="needs float32"):
        ow.ops.softmax(ow.tensor([1, 2], device=vulkan))


@pytest.mark.parametrize("policy", ["auto", "gpu", "minimize_transfers"])
def test_a_compiled_step_runs_on_the_processor_as_a_whole(policy, vulkan):
    def losses(device):
        generator = np.random.default_rng(1)
        w = ow.Parameter(generator.standard_normal((16, 16)).astype(np.float32), device=device)
        scale = ow.Parameter(np.ones(16, np.float32), device=device)
        optimizer = ow.optim.AdamW([w], lr=0.01)
        other = ow.optim.SGD([scale], lr=0.01)

        def train_step(x):
            optimizer.zero_grad()
            other.zero_grad()
            loss = (_attention(x @ w) * scale).square().mean()  # what it uses after the attention moves too
            loss.backward()
            optimizer.step()
            other.step()
            return loss

        step = ow.compile(train_step)
        x = _queries("cpu").numpy()
        return [step(x).item() for _ in range(4)], w

    with ow.placement("cpu"):
        want, _ = losses("cpu")
    with ow.placement(policy, gpu=vulkan), pytest.warns(UserWarning, match=r"train_step of \(1, 64, 16\) ran on 'cpu'"):
        got, w = losses(vulkan)
    assert w.device.name == "cpu"
    assert got == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("policy", ["auto", "gpu", "minimize_transfers"])
def test_a_compiled_step_moves_when_later_arguments_exceed_a_limit(policy, vulkan):
    w = ow.Parameter(np.eye(16, dtype=np.float32), device=vulkan)
    step = ow.compile(lambda x: _attention(x @ w).sum())
    small, large = (np.ones((1, length, 16), np.float32) for length in (8, 64))
    with ow.placement(policy, gpu=vulkan):
        assert step(small).item() == pytest.approx(small.size)
        with pytest.warns(UserWarning, match=r"ran on 'cpu', not on 'vulkan'"):
            assert step(large).item() == pytest.approx(large.size)
        assert [step(x).item() for x in (small, large)] == pytest.approx([small.size, large.size])
    assert w.device.name == "cpu"


def test_a_compiled_step_that_was_given_a_device_says_the_limit(vulkan):
    step = ow.compile(lambda x: _attention(x), device=vulkan)
    with ow.placement("gpu", gpu=vulkan), pytest.raises(DeviceLimitError, match="placement"):
        step(_queries("cpu").numpy())


def test_a_strided_view_of_16_bits_that_a_kernel_cannot_copy_is_carried_over_as_it_lies(vulkan, monkeypatch):
    values = np.random.default_rng(1).standard_normal((5, 143)).astype(np.float32)
    x = ow.tensor(values, device=vulkan, dtype="bfloat16")[:, 3::2]
    monkeypatch.setattr(vulkan, "capabilities", replace(vulkan.capabilities, max_binding_bytes=300))
    with ow.placement("cpu"):
        total = ow.ops.sum(x, 1)
    assert total.device.name == "cpu"
    np.testing.assert_allclose(total.float().numpy(), values[:, 3::2].sum(1), rtol=0.05, atol=0.1)
