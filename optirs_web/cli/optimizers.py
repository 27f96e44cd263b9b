"""``optirs-web optimizers``: lists every optimizer, the cost of a step, and the sources that it was compared with.

The costs of one step are counted here. The comparisons are results of the tests, written to optimizers.json by
``make optimizers``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import click

import optirs_web as ow

from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.kernels import Kernel
from .tables import print_table, table_of

__all__ = ["Cost", "all_optimizers", "cost_of", "make_optimizer", "optimizers", "results"]

_SHAPE = (256, 256)
_DEVICES = ("cpu", "vulkan", "webgpu", "opencl", "xla", "cuda")
_HEADINGS = (
    "optimizer",
    "paper",
    "state B/param",
    "moved B/param",
    "dispatches",
    "compared with",
)


class Cost(NamedTuple):
    """The cost of a step of one parameter of 256 x 256 elements.

    Attributes:
        state: bytes of state per element.
        moved: bytes per element of the views that its kernels bind, twice where they write.
        dispatches: the number of dispatches.
    """

    state: float
    moved: float
    dispatches: int


def all_optimizers() -> dict[str, type[ow.optim.Optimizer]]:
    """Return the classes of all optimizers of the library by name."""
    public = {name: getattr(ow.optim, name) for name in dir(ow.optim)}
    return {
        name: class_
        for name, class_ in sorted(public.items(), key=lambda item: item[0].lower())
        if isinstance(class_, type) and issubclass(class_, ow.optim.Optimizer) and class_ is not ow.optim.Optimizer
    }


def _kfac(param: ow.Parameter) -> ow.optim.KFAC:
    """Return a K-FAC whose statistics, inputs and gradients of outputs, have a batch of one."""
    statistics = [tuple(ow.ones((1, size), device=param.device) for size in reversed(param.shape))]
    return ow.optim.KFAC([param], statistics=lambda: statistics)


def results() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return by optimizer and device the number of cases that passed, their largest error, and their sources."""
    by_optimizer: Mapping[str, Any] = json.loads(files(__package__).joinpath("optimizers.json").read_text("utf-8"))
    return by_optimizer


_HISTORY = 10
_FACTORIES: Mapping[str, Callable[[ow.Parameter], Any]] = {
    "DiagonalNewton": lambda param: ow.optim.DiagonalNewton([param], diagonal=lambda: [param.detach()]),
    "KFAC": _kfac,
    "LBFGS": lambda param: ow.optim.LBFGS([param], max_iter=1, history_size=_HISTORY),
    "Lookahead": lambda param: ow.optim.Lookahead(ow.optim.SGD([param])),
    "NewtonCG": lambda param: ow.optim.NewtonCG([param], hvp=lambda vectors: vectors, max_iter=1),
    "Reptile": lambda param: ow.optim.Reptile(ow.optim.SGD([param]), inner_steps=1),
    "SAM": lambda param: ow.optim.SAM(ow.optim.SGD([param])),
}
"""Functions that make the optimizers that need more than parameters."""


def make_optimizer(make: type[ow.optim.Optimizer], param: ow.Parameter, **options: Any) -> Any:
    """Return an optimizer of this class over one parameter; `options` only matter where it needs only parameters."""
    return _FACTORIES[make.__name__](param) if make.__name__ in _FACTORIES else make([param], **options)


def cost_of(make: type[ow.optim.Optimizer], **options: Any) -> Cost:
    """Return the cost of a step on the `cpu` device, not the first one, which may allocate and compile."""
    device = ow.device("cpu")
    param = ow.Parameter(ow.zeros(_SHAPE, device=device))
    optimizer = make_optimizer(make, param, **options)
    rows = ow.arange(_SHAPE[0], device)
    falling = iter([ow.ones(_SHAPE, device=device) * (0.5**step) for step in range(2 * _HISTORY)])
    loss = 0.0

    def closure() -> float:
        """Set the next gradient and return a falling loss, without dispatches of its own."""
        nonlocal loss
        grad = next(falling)
        param.grad = grad if make.takes_dense else ow.SparseRows(rows, grad, _SHAPE)
        loss -= _SHAPE[0] * _SHAPE[1]
        return loss

    for _ in range(_HISTORY + 1 if make is ow.optim.LBFGS else 1):
        optimizer.step(closure)
    with _observed(device) as bound:
        optimizer.step(closure)
    state = [view.nbytes for name, view in optimizer.state_views().items() if not name.endswith("scalars")]
    return Cost(sum(state) / param.size, sum(bound) / param.size, len(bound))


@contextmanager
def _observed(device: Device) -> Iterator[list[int]]:
    """Yield a list that receives the bytes moved by each dispatch."""
    moved: list[int] = []

    def observe(kernel: Kernel, views: Sequence[View]) -> None:
        pairs = zip(kernel.bindings, views, strict=True)
        moved.append(sum(view.nbytes * (2 if binding.writes else 1) for binding, view in pairs))

    device.observers.append(observe)
    try:
        yield moved
    finally:
        device.observers.remove(observe)


def _paper(make: type[ow.optim.Optimizer]) -> str:
    """Return the first citation of the class's docstring: the content of the parentheses that have a year."""
    match = re.search(r"\(([^()]*\b(?:19|20)\d\d\b[^()]*)\)", make.__doc__ or "")
    return " ".join(match[1].split()) if match else ""


def _rows() -> Iterator[tuple[str, ...]]:
    """Yield the headings, and a row for each optimizer, with a column for each device that has results."""
    measured = results()
    devices = [device for device in _DEVICES if any(device in passed for passed in measured.values())]
    yield *_HEADINGS, *(f"error, {device}" for device in devices)
    for name, make in all_optimizers().items():
        cost, passed = cost_of(make), measured.get(name, {})
        counts = f"{cost.state:.4g}", f"{cost.moved:.4g}", str(cost.dispatches)
        sources = sorted({source for result in passed.values() for source in result["source"]})
        errors = (f"{passed[device]['error']:.1e}" if device in passed else "" for device in devices)
        yield name, _paper(make), *counts, ", ".join(sources), *errors


_INTRODUCTION = """# Optimizers

Made by `optirs-web optimizers --markdown`; the figures come from the tests (`make optimizers`, for opencl and xla
`make optimizers-targets`).

- State and bytes moved: per parameter, with the default options, counted from the buffers that the kernels of a step
  are bound to (twice what they write), for one parameter of 256 x 256 elements.
- Lookahead, SAM and Reptile: around SGD, whose figures are included; Reptile with one inner step. The cost of
  gradients, and of products and diagonals of a Hessian, is not included.
- L-BFGS: an iteration with a full history of 10. Newton-CG: a step with one iteration of conjugate gradients, whose
  first length suffices. Both wait for the device.
- Dispatches: of such a step; the number does not grow with the number of tensors (Muon, Shampoo, SOAP, GaLore
  and APOLLO: with that of shapes; K-FAC: with that of layers).
- Error: the largest difference of any parameter after the steps of any case, as a fraction of the largest magnitude,
  against torch 2.13 or optax 0.2.8 in float64, or against a float64 reference written from the paper.
"""


@click.command()
@click.option("--markdown", is_flag=True, help="Print the documentation page.")
def optimizers(markdown: bool) -> None:
    """List every optimizer: its paper, what a step costs, and its error against its source."""
    headings, *rows = _rows()
    if markdown:
        click.echo(_INTRODUCTION)
        for row in (headings, ("---",) * len(headings), *rows):
            click.echo(f"| {' | '.join(row)} |")
        return
    table = table_of(*headings)
    for row in rows:
        table.add_row(*row)
    print_table(table)
