"""``optirs-web shader`` finds the rule of an optimizer by the name of its class."""

import pytest
from click.testing import CliRunner

from optirs_web.cli.commands import cli
from optirs_web.cli.optimizers import all_optimizers


def shader(*arguments):
    return CliRunner().invoke(cli, ["shader", *arguments])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("AdamW", ["adam", "--flag", "decoupled_weight_decay=true"]),
        ("ADAMW", ["adam", "--flag", "decoupled_weight_decay=true"]),
        ("Adam", ["adam"]),
        ("AdamWScheduleFree", ["schedule_free", "--flag", "adaptive=true"]),
        ("LDoG", ["dog"]),
        ("DAdaptAdaGrad", ["dadapt_adagrad"]),
        ("SAM", ["sam"]),
        ("MatMul", ["matmul"]),
    ],
)
def test_a_class_is_its_rule_with_the_flags_that_it_sets(name, arguments):
    actual = shader(name)
    assert actual.exit_code == 0
    assert actual.stdout == shader(*arguments).stdout


def test_every_class_has_a_shader_or_says_that_it_has_not_one():
    refused = [name for name in all_optimizers() if shader(name).exit_code]
    assert refused == ["LBFGS", "NewtonCG", "Ranger"]
    for name in refused:
        assert f"{name} has no rule of its own, or several" in shader(name.lower()).stderr


def test_a_class_that_is_misspelt_is_found():
    assert "did you mean 'AdamWScheduleFree'?" in shader("AdamWScheduelFree").stderr
