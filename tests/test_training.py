"""Training on the digits as library code: it learns, the same on every device, and continues where it stopped."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.training import COMMON, OPTIMIZERS, Config, DigitsTraining, Result, plot_curves, train_digits

SMALL = {"hidden": (32,), "epochs": 4}
FIRST = ("adamw", "adam", "sgd")
MEANS_COMPUTED_ANEW = ("adafactor", "came")  # checkpoints have state per row, but not its mean
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="session")
def default_run(open_device):
    """`default_run(name)`: the result of the default config on that device, trained once for all tests."""
    results = {}

    def train(name):
        open_device(name)
        if name not in results:
            results[name] = train_digits(Config(device=name))
        return results[name]

    return train


def trained(config):
    training = DigitsTraining(config)
    for _ in training.run():
        pass
    return training


def content(training):
    """Every number of parameters and optimizer state, as bytes."""
    state = training.optimizer.state_dict()["state"]
    arrays = [param.numpy() for param in training.parameters.values()]
    arrays += [np.asarray(value) for entry in state.values() for value in entry.values()]
    return [array.tobytes() for array in arrays]


def test_default_run_reaches_97_percent(device, default_run):
    assert default_run(device.name).test_accuracy >= 0.97


def test_loss_curves_of_two_devices_agree_at_every_epoch(default_run):
    first, second = default_run("cpu"), default_run("vulkan")
    for epoch, other in zip(first.history, second.history, strict=True):
        for a, b in ((epoch.train_loss, other.train_loss), (epoch.test_loss, other.test_loss)):
            assert abs(a - b) <= 1e-3 * max(a, 0.05), f"epoch {epoch.epoch}"


def test_nothing_is_read_back_within_an_epoch(device, default_run):
    result = default_run(device.name)
    steps = math.ceil(result.train_images / result.config.batch_size)
    losses, logits = steps + 1, result.test_images * 10
    assert result.stats.bytes_down == len(result.history) * 4 * (losses + logits)
    assert result.stats.replays == len(result.history) * (steps + 1)


def test_every_optimizer_that_needs_gradients_alone_has_a_recipe():
    public = {name: getattr(ow.optim, name) for name in ow.optim.__all__}
    names = {name for name, class_ in public.items() if hasattr(class_, "rule") and not class_.needs}
    assert {optimizer.name for optimizer in OPTIMIZERS.values()} == names
    assert list(OPTIMIZERS) == [optimizer.name.lower() for optimizer in OPTIMIZERS.values()]


def test_common_optimizers_come_first_and_the_others_from_a_to_z():
    names = [optimizer.name for optimizer in OPTIMIZERS.values()]
    common = [recipe.name for recipe in COMMON]
    assert names == [*common, *sorted(set(names) - set(common), key=str.lower)]


def test_capitals_in_the_name_of_an_optimizer_do_not_matter():
    configs = [Config(device="cpu", optimizer=name, epochs=1, hidden=(8,)) for name in ("Adan", "adan", "ADAN")]
    assert {config.checked().optimizer for config in configs} == {"adan"}
    assert len({train_digits(config).history for config in configs}) == 1


@pytest.mark.parametrize("optimizer", FIRST)
def test_learns_with_each_optimizer(device, optimizer):
    result = train_digits(Config(device=device.name, optimizer=optimizer, **SMALL))
    losses = [epoch.train_loss for epoch in result.history]
    assert losses == sorted(losses, reverse=True)
    assert result.test_accuracy > 0.9


def whole_and_continued(config, path):
    """A run of four epochs, and one that is continued after two."""
    trained(replace(config, epochs=2)).save(path)
    continued = DigitsTraining(config)
    continued.load(path)
    assert [epoch.epoch for epoch in continued.run()] == [3, 4]
    return trained(config), continued


def assert_same_bits(whole, continued):
    assert continued.history == whole.history
    assert content(continued) == content(whole)


@pytest.mark.parametrize("optimizer", FIRST)
def test_two_and_two_epochs_are_four_bit_for_bit(device, optimizer, tmp_path):
    config = Config(device=device.name, optimizer=optimizer, **SMALL)
    assert_same_bits(*whole_and_continued(config, tmp_path / "checkpoint.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", [optimizer for optimizer in OPTIMIZERS if optimizer not in (*FIRST, *MEANS_COMPUTED_ANEW)]
)
def test_two_and_two_epochs_are_four_with_the_other_optimizers_too(optimizer, tmp_path):
    config = Config(device="cpu", optimizer=optimizer, **SMALL)
    assert_same_bits(*whole_and_continued(config, tmp_path / "checkpoint.safetensors"))


@pytest.mark.parametrize("optimizer", MEANS_COMPUTED_ANEW)
def test_two_and_two_epochs_are_four_to_rounding_where_means_are_computed_anew(optimizer, tmp_path):
    config = Config(device="cpu", optimizer=optimizer, **SMALL)
    whole, continued = whole_and_continued(config, tmp_path / "checkpoint.safetensors")
    np.testing.assert_allclose(continued.history, whole.history, rtol=1e-6)


def test_runs_with_the_same_seed_are_equal_and_with_another_are_not():
    first, same, other = (train_digits(Config(device="cpu", seed=seed, **SMALL)) for seed in (1, 1, 2))
    assert first.history == same.history
    assert first.history != other.history


def test_last_batch_is_trained_too():
    training = trained(Config(device="cpu", epochs=1, hidden=(8,), batch_size=1000))
    assert training.optimizer.state_dict()["state"][0]["step"] == 2  # of 1,000 and of 437 images


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": math.nan}, "lr must"),
        ({"lr": math.inf}, "lr must"),
        ({"lr": -1.0}, "lr must"),
        ({"lr_decay": 0.0}, "lr_decay must"),
        ({"optimizer": "abacus"}, "no optimizer 'abacus'; known are adamw, adam, sgd, "),
        ({"epochs": 0}, "epochs must"),
        ({"batch_size": 0}, "batch_size must"),
        ({"hidden": (16, 0)}, "hidden must"),
        ({"seed": -1}, "seed must"),
        ({"fold": 5}, "no fold 5"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        DigitsTraining(Config(device="cpu", **options))


def test_a_diverging_run_stops_and_says_what_to_try(device):
    with pytest.raises(ow.errors.NonFiniteError, match=r"epoch 1 is (nan|inf).*lower learning rate"):
        train_digits(Config(device=device.name, optimizer="sgd", lr=1e10, **SMALL))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"fold": 1}, "fold is 0 there and 1 here"),
        ({"lr": 0.1}, "lr is"),
        ({"hidden": (16,)}, "hidden is"),
        ({"optimizer": "sgd"}, "optimizer is adamw there"),
        ({"epochs": 1}, "already has 2 epochs"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(changed, message, tmp_path):
    config = Config(device="cpu", hidden=(8,), epochs=2)
    path = tmp_path / "checkpoint.safetensors"
    trained(config).save(path)
    with pytest.raises(ow.errors.CheckpointError, match=message):
        DigitsTraining(replace(config, **changed)).load(path)


def test_metrics_are_complete_and_go_through_json(default_run):
    result = default_run("cpu")
    metrics = json.loads(json.dumps(result.metrics()))
    assert metrics["test_accuracy"] == result.history[-1].test_accuracy
    assert metrics["device"] == "cpu"
    assert metrics["config"]["lr"] == OPTIMIZERS["adamw"].lr
    assert (metrics["train_images"], metrics["test_images"]) == (1437, 360)
    assert [metric["epoch"] for metric in metrics["history"]] == list(range(1, 26))
    assert set(metrics["history"][0]) == {"epoch", "lr", "train_loss", "test_loss", "test_accuracy"}
    assert metrics["stats"]["dispatches"] > 0
    assert metrics["seconds"] > 0


@pytest.mark.parametrize("epochs", [1, 25])
def test_curves_are_drawn(default_run, tmp_path, epochs):
    whole = default_run("cpu")
    result = Result(whole.config, "cpu", whole.history[:epochs], 1437, 360, 1.0, whole.stats)
    plot_curves(result, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]
