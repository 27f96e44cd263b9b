"""The curves of a run as a picture. matplotlib is imported when it is drawn; no window is ever opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..files import write_picture

if TYPE_CHECKING:
    from .result import Result

__all__ = ["plot_curves"]

_TRAIN, _TEST, _ACCURACY = "#1f5fa8", "#d1495b", "#2a7f62"


def plot_curves(result: Result, path: str | os.PathLike[str]) -> None:
    """Draw loss and accuracy over the epochs into a PNG of 1760 by 720 pixels.

    The file is replaced as a whole.

    Args:
        result: the run.
        path: where to write.

    Raises:
        ImportError: matplotlib is not installed (``pip install 'optirs-web[train]'``).

    Example:
        >>> from optirs_web.training import Config, train_digits
        >>> plot_curves(train_digits(Config(device="cpu", epochs=2)), "curves.png")  # doctest: +SKIP
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    loss_axes, accuracy_axes = figure.subplots(1, 2)
    figure.suptitle(_title(result), fontsize=12)
    _draw_losses(loss_axes, result)
    _draw_accuracy(accuracy_axes, result)
    for axes in (loss_axes, accuracy_axes):
        _tidy(axes, len(result.history))
    write_picture(path, figure)


def _title(result: Result) -> str:
    config = result.config
    return (
        f"UCI digits, fold {config.fold}: MLP {config.widths}, {config.optimizer} (lr {config.lr:g}) "
        f"on {result.device}, seed {config.seed}"
    )


def _draw_losses(axes: Any, result: Result) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    epochs = [epoch.epoch for epoch in result.history]
    marker = "o" if len(epochs) == 1 else None
    curves = (
        ("train (during the epoch)", _TRAIN, [epoch.train_loss for epoch in result.history]),
        ("test (after the epoch)", _TEST, [epoch.test_loss for epoch in result.history]),
    )
    for label, color, losses in curves:
        axes.plot(epochs, losses, color=color, marker=marker, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title("Loss", loc="left", fontsize=11)
    axes.set_ylabel("cross-entropy in nats (log scale)")
    axes.legend(frameon=False)


def _draw_accuracy(axes: Any, result: Result) -> None:
    epochs = [epoch.epoch for epoch in result.history]
    percent = [100 * epoch.test_accuracy for epoch in result.history]
    best, final = result.best, result.history[-1]
    axes.plot(epochs, percent, color=_ACCURACY, marker="o" if len(epochs) == 1 else None)
    axes.set_title("Test accuracy", loc="left", fontsize=11)
    axes.set_ylabel(f"test accuracy, % of {result.test_images} images")
    # Room for the legend below the flat end of the curve.
    low = min(percent)
    axes.set_ylim(low - 0.35 * (100 - low) - 0.5, 100 + 0.06 * (100 - low) + 0.05)
    for epoch, name, marker in ((best, "best", "*"), (final, "final", "o")):
        accuracy = 100 * epoch.test_accuracy
        label = f"{name}: {accuracy:.2f}% (epoch {epoch.epoch})"
        size = 13 if marker == "*" else 7
        axes.plot([epoch.epoch], [accuracy], marker, color=_ACCURACY, markersize=size, label=label)
    axes.legend(frameon=False, loc="lower right")


def _tidy(axes: Any, epochs: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.set_xlim(0.5, epochs + 0.7)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
