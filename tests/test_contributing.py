"""The exercises of CONTRIBUTING.md, taken out of the page as they stand, compute what they say on every device."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
BLOCKS = {
    match[2]: match[0]
    for match in re.finditer(r"(?<=```)(?:wgsl|python)\n(//|#) (\S+?),?[ \n].*?(?=```)", PAGE, re.DOTALL)
}


def block(file):
    """Return the block of a file, without the name of its language."""
    return BLOCKS[file].partition("\n")[2]


def lines_of_code(text):
    """Count what is neither blank nor a comment, a docstring or an import."""
    words = [line.strip() for line in text.splitlines()]
    return len([line for line in words if line and not line.startswith(("//", "#", '"""', "from "))])


@pytest.mark.parametrize(
    ("wgsl", "python"),
    [
        ("shaders/rows/rms_norm.wgsl", "optirs_web/ops/rms_norm.py"),
        ("shaders/optimizers/normalized_momentum.wgsl", "optirs_web/optim/normalized_momentum.py"),
    ],
)
def test_an_exercise_is_short(wgsl, python):
    assert 0 < lines_of_code(block(wgsl)) < 25
    assert 0 < lines_of_code(block(python)) < 30


@pytest.mark.parametrize("shape", [(5, 7), (300, 33), (3, 5000)])
def test_the_operation_is_its_formula(numerics, shape):
    rng = np.random.default_rng(0)
    x, grad = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    weight = rng.standard_normal(shape[-1:]).astype(np.float32)
    texts = block("shaders/rows/rms_norm.wgsl"), block("optirs_web/ops/rms_norm.py")
    y, x_grad, weight_grad = numerics("contributed_operation", *texts, x, weight, grad)
    exact, h = x.astype(np.float64), grad.astype(np.float64) * weight
    scale = 1 / np.sqrt((exact**2).mean(1, keepdims=True) + 0.1)
    np.testing.assert_allclose(y, exact * scale * weight, rtol=1e-5, atol=1e-6)
    along = exact * scale**2 * (h * exact).mean(1, keepdims=True)
    np.testing.assert_allclose(x_grad, scale * (h - along), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weight_grad, (grad * exact * scale).sum(0), rtol=1e-5, atol=3e-5)


def test_the_optimizer_is_its_rule(numerics):
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in ((3,), (20, 30), (2, 2))]
    grads = [[rng.standard_normal(param.shape).astype(np.float32) for param in params] for _ in range(4)]
    for step in grads:
        step[2][:] = 0  # what has no direction stays where it is
    texts = block("shaders/optimizers/normalized_momentum.wgsl"), block("optirs_web/optim/normalized_momentum.py")
    got = numerics("contributed_optimizer", *texts, params, grads)
    for number, param in enumerate(params):
        want, buffer = param.astype(np.float64), 0.0
        for step in grads:
            buffer = 0.5 * buffer + 0.5 * step[number].astype(np.float64)
            norm = np.sqrt((buffer**2).sum())
            want -= 0.1 * buffer / norm if norm else 0.0
        np.testing.assert_allclose(got[number], want, rtol=1e-5, atol=1e-6)
