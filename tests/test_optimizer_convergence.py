"""Each optimizer lowers its stated problem by the stated factor, and costs what the table says."""

import numpy as np
import pytest
from chromium import ROOT
from click.testing import CliRunner
from optimizer_cases import CASES, CONVERGENCE

import optirs_web as ow
from optirs_web.cli.commands import cli
from optirs_web.cli.optimizers import all_optimizers, cost_of, results
from optirs_web.datasets import load_digits
from optirs_web.runtime.rule_kernels import UpdateKernel
from optirs_web.runtime.rules import Rule


def rosenbrock(device):
    """(1 - x)² + 100 (y - x²)² from (-1.2, 1)."""
    x, y = (ow.Parameter([value], device=device) for value in (-1.2, 1.0))

    def loss():
        off, valley = 1.0 - x, y - x * x
        return (off * off + 100.0 * (valley * valley)).sum()

    return [x, y], loss


def quadratic(device):
    """Half the sum of c x² over 64 unknowns, the curvatures c geometric from 1 to 1,000, from ones."""
    curvatures = ow.tensor(np.geomspace(1, 1000, 64).reshape(8, 8).astype(np.float32), device=device)
    x = ow.Parameter(np.ones((8, 8), np.float32), device=device)
    return [x], lambda: (curvatures * (x * x)).sum() * 0.5


def digits(device):
    """Cross-entropy of a network 64-32-10 on the first 256 digits, all at once."""
    images, labels = (array[:256] for array in load_digits()[:2])
    images = ow.tensor(np.asarray(images, np.float32).reshape(256, 64), device=device)
    labels = ow.tensor(np.asarray(labels, np.int32), device=device)
    rng = np.random.default_rng(0)
    shapes = [(64, 32), (32,), (32, 10), (10,)]
    params = [
        ow.Parameter(
            (rng.standard_normal(shape) * (shape[0] ** -0.5 if len(shape) > 1 else 0)).astype(np.float32), device
        )
        for shape in shapes
    ]
    w0, b0, w1, b1 = params
    return params, lambda: ow.cross_entropy((images @ w0 + b0).relu() @ w1 + b1, labels)


PROBLEMS = {"rosenbrock": rosenbrock, "quadratic": quadratic, "digits": digits}


@pytest.mark.slow
@pytest.mark.parametrize("row", CONVERGENCE, ids=[f"{case.optimizer}-{case.problem}" for case in CONVERGENCE])
def test_lowers_its_problem_by_the_stated_factor(row):
    device = ow.device("cpu")
    params, loss_of = PROBLEMS[row.problem](device)
    optimizer = getattr(ow.optim, row.optimizer)(params, **row.options)

    def train_step():
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    before = loss_of().item()
    step = ow.compile(train_step, device=device)
    for _ in range(row.steps):
        step()
    assert loss_of().item() <= before / row.factor


def test_every_optimizer_has_a_problem_that_it_lowers():
    """Wrappers and what the host drives have theirs in tests of their own, as sparse gradients do."""
    assert {case.optimizer for case in CASES} - {row.optimizer for row in CONVERGENCE} == set()


def test_the_table_of_the_documentation_is_that_of_the_results():
    made = CliRunner().invoke(cli, ["optimizers", "--markdown"]).stdout
    assert (ROOT / "docs/optimizers.md").read_text("utf-8") == made
    assert set(all_optimizers()) - set(results()) == set()
    assert all(set(result) >= {"cpu", "vulkan", "webgpu"} for name, result in results().items())


@pytest.mark.parametrize(
    ("rule", "flags", "nbytes"),
    [
        ("adam", {"decoupled_weight_decay": True}, 28),
        ("adam", {"amsgrad": True}, 36),
        ("sgd", {}, 12),
        ("sgd", {"use_momentum": True}, 20),
        ("lion", {}, 20),
    ],
)
def test_an_update_moves_no_more_bytes_per_parameter_than_it_must(rule, flags, nbytes):
    bindings = UpdateKernel.of(Rule(rule), tuple(sorted(flags.items()))).bindings
    assert sum(4 * (1 + binding.writes) for binding in bindings if binding.type == "array<vec4<f32>>") == nbytes


def test_the_table_counts_the_same():
    cost = cost_of(ow.optim.AdamW)
    assert cost.state == 8
    assert cost.moved == pytest.approx(28, rel=2e-3)  # and the table of blocks
    assert cost.dispatches == 2
