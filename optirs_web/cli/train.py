"""``optirs-web train``: trains the digits with a progress bar, and writes checkpoint, metrics and curves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import optirs_web as ow

from ..datasets.digits import FOLDS
from ..files import write_whole
from ..training import COMMON, OPTIMIZERS, Config, DigitsTraining, Epoch, Result, plot_curves
from .misspelt import similar

__all__ = ["train"]

CHECKPOINT, METRICS, CURVES = "checkpoint.safetensors", "metrics.json", "curves.png"

_DEFAULTS = Config()
_MORE = len(OPTIMIZERS) - len(COMMON)
_FOLDER = click.Path(file_okay=False, path_type=Path)


class _BadOption(click.ClickException):
    """An option out of range, with the exit status of click's own usage errors."""

    exit_code = 2


def _option(field: str, text: str) -> Callable[[Any], Any]:
    """Return the option for a field of `Config`, with its default and type."""
    default = getattr(_DEFAULTS, field)
    name = "--" + field.replace("_", "-")
    return click.option(name, type=type(default), default=default, show_default=True, help=text)


@click.group()
def train() -> None:
    """Train a model on real data."""


@train.command()
@click.option("--device", help='Device to train on, one of `optirs-web devices`. [default: "auto"]')
@_option("optimizer", f"{', '.join(recipe.name for recipe in COMMON)}, and {_MORE} more; see `optirs-web optimizers`.")
@_option("epochs", "Epochs to train.")
@_option("seed", "Seed of the initial weights and the image order.")
@click.option("--lr", type=float, help="Initial learning rate. [default: the optimizer's]")
@_option("batch_size", "Images per step.")
@_option("fold", "Fold to test on, 0 to 4; the others are for training.")
@click.option("--folds", is_flag=True, help="Train five times, once per fold, and print the mean.")
@click.option("--out", type=_FOLDER, default=Path("runs/digits"), show_default=True, help="Folder to save files in.")
@click.option("--resume", is_flag=True, help="Continue from the checkpoint in --out.")
def digits(folds: bool, out: Path, resume: bool, **options: Any) -> None:
    """Train an MLP on the UCI handwritten digits: 1,797 real images, in five published folds."""
    if folds and resume:
        raise _BadOption("--resume continues one run: use --fold instead of --folds")
    source = click.get_current_context().get_parameter_source("fold")
    if folds and source is not click.core.ParameterSource.DEFAULT:
        raise _BadOption("--folds runs every fold: leave out --fold")
    chosen = range(FOLDS) if folds else [options["fold"]]
    configs = [_checked({**options, "fold": fold}) for fold in chosen]
    try:
        out.mkdir(parents=True, exist_ok=True)
        if folds:
            _train_folds(configs, out)
        else:
            _train(configs[0], out, resume)
    except BrokenPipeError:
        raise  # the reader of our output closed the pipe; click ends without a message
    except OSError as error:
        raise click.ClickException(str(error)) from error


def _checked(options: dict[str, Any]) -> Config:
    name = options["optimizer"].lower()
    if name not in OPTIMIZERS:
        from .optimizers import all_optimizers

        names = {class_name.lower(): class_name for class_name in all_optimizers()}
        if name in names:
            raise _BadOption(
                f"{names[name]} is not for this command: it needs more than gradients, or tensors of particular shapes"
            )
        hint = similar(name, (recipe.name for recipe in OPTIMIZERS.values()))
        raise _BadOption(f"there is no optimizer '{options['optimizer']}'{hint}; `optirs-web optimizers` lists them")
    try:
        return Config(**options).checked()
    except ValueError as error:
        raise _BadOption(str(error)) from error


def _train_folds(configs: list[Config], out: Path) -> None:
    results = []
    for config in configs:
        folder = out / f"fold{config.fold}"
        folder.mkdir(exist_ok=True)
        results.append(_train(config, folder, resume=False))
    accuracies = [result.test_accuracy for result in results]
    mean = sum(accuracies) / len(accuracies)
    for config, accuracy in zip(configs, accuracies, strict=True):
        click.echo(f"fold {config.fold}: test accuracy {accuracy:.2%}")
    click.echo(f"mean of {len(accuracies)} folds: test accuracy {mean:.2%}")
    _write_json(out / METRICS, {"test_accuracy": mean, "folds": [result.metrics() for result in results]})
    click.echo(f"saved: {out / METRICS}")


def _train(config: Config, out: Path, resume: bool) -> Result:
    checkpoint = out / CHECKPOINT
    if resume and not checkpoint.exists():
        raise click.ClickException(f"there is no checkpoint {checkpoint} to continue from; start without --resume")
    training = DigitsTraining(config)
    if resume:
        training.load(checkpoint)
    _announce(training)
    if len(training.history) == config.epochs:
        click.echo(f"all {config.epochs} epochs are done; continue with a larger --epochs")
        return training.result()
    try:
        with _reporter(training) as report:
            for epoch in training.run():
                training.save(checkpoint)
                report(epoch)
    except KeyboardInterrupt:
        _interrupted(training, checkpoint)
    result = training.result()
    plot_curves(result, out / CURVES)
    _write_json(out / METRICS, _metrics(training, result))
    best = result.best
    click.echo(
        f"test accuracy {result.test_accuracy:.2%} after {len(result.history)} epochs "
        f"(best {best.test_accuracy:.2%}, epoch {best.epoch}); {result.seconds:.1f} s on {result.device}"
    )
    click.echo(f"saved: {', '.join(str(out / name) for name in (CURVES, CHECKPOINT, METRICS))}")
    return result


def _announce(training: DigitsTraining) -> None:
    config, device = training.config, training.device
    click.echo(f"device: {device.name} ({device.info.description}), {device.why}")
    trained, tested = len(training.data.train_images), len(training.data.test_images)
    click.echo(f"data: UCI digits, {trained:,} training images, {tested:,} test images (fold {config.fold})")
    click.echo(f"model: MLP {config.widths}, {config.optimizer} with lr {config.lr:g}, seed {config.seed}")
    if training.history:
        click.echo(f"continued after epoch {len(training.history)}")


def _interrupted(training: DigitsTraining, checkpoint: Path) -> None:
    """Print what an interrupt keeps, and exit with the status that a shell gives for SIGINT."""
    saved = f"{checkpoint} holds the last complete epoch; continue with --resume"
    click.echo(f"interrupted: {saved if training.history else 'no epoch was completed'}", err=True)
    raise click.exceptions.Exit(130)


# Progress.


def _figures(epoch: Epoch) -> str:
    losses = f"train loss {epoch.train_loss:.4f}  test loss {epoch.test_loss:.4f}"
    return f"{losses}  test accuracy {epoch.test_accuracy:.2%}"


def _brief(epoch: Epoch) -> str:
    return f"loss {epoch.train_loss:.4f}  accuracy {epoch.test_accuracy:.2%}"


@contextmanager
def _reporter(training: DigitsTraining) -> Iterator[Callable[[Epoch], None]]:
    """Yield a function that reports an epoch: by a progress bar on a terminal, elsewhere by a line of text."""
    epochs = training.config.epochs
    console = Console()
    if not console.is_terminal:
        yield lambda epoch: click.echo(f"epoch {epoch.epoch:>{len(str(epochs))}}/{epochs}  {_figures(epoch)}")
        return
    figures = TextColumn("{task.description}")
    columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), figures, TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling", total=epochs, completed=len(training.history))
        yield lambda epoch: progress.update(task, completed=epoch.epoch, description=_brief(epoch))


# Files.


def _metrics(training: DigitsTraining, result: Result) -> dict[str, Any]:
    device = training.device
    return {
        **result.metrics(),
        "device_description": device.info.description,
        "device_why": device.why,
        "version": ow.__version__,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, [f"{json.dumps(content, indent=2)}\n".encode()])
