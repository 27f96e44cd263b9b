"""The choices that the tuner has for each kernel, the limits of devices on them, and the shapes that share a choice.

| kernels | numbers | invocations of a workgroup | bytes that they share |
|---|---|---|---|
| `matmul`, `batched_matmul` (fused ones too) | those of `products.Tile` | `Tile.invocations` | `Tile.nbytes` |
| the same by quads | 0 each | 16 | 0 |
| the same by matrices, if the kernel has them | those of `MatrixTile`, 0 in between | 128 | `MatrixTile.nbytes` |
| `sum` (fused too) | WORKGROUP | WORKGROUP | 8 WORKGROUP |
| map functions (fused too) | WORKGROUP, TURNS: elements of each invocation | WORKGROUP | 0 |
| an optimizer's `update` (state not in 8 bits) | WORKGROUP | WORKGROUP | 0 |

The first candidate of each is what runs where nothing is tuned, but for products, for which `products` has a table by
class of device and shape, and for sums of long rows on hardware (`launch.row_constants`). All of them compute the
same, but for sums and products by quads: those are added up in another order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from ...lower.maps import LOOP
from ...wgsl import rule_shell, slot_storage
from ...wgsl.shell import BLOCK
from ..backend import Capabilities
from ..kernels import Kernel, SourceKernel
from ..launches import Launch
from ..map_kernels import FusedKernel, MapKernel, fused_kernel
from ..products import QUAD_INVOCATIONS, SMALL, TILES, Tile, grid_of_products, products_of_grid, tile_of
from ..rule_kernels import UpdateKernel
from ..subgroup_matrices import MATRIX_TILES, MatrixTile, shape_of

__all__ = ["TUNABLE", "Choice", "Tunable", "tunable_of"]

Choice = tuple[int, ...]
"""A value for each of the numbers of a `Tunable`."""


class Tunable(ABC):
    """Kernels that are tuned alike.

    Attributes:
        name: of all of them, in reports and caches.
        numbers: what is chosen.
        candidates: the first is the default.
    """

    name: str
    numbers: tuple[str, ...]
    candidates: tuple[Choice, ...]

    def default(self, launch: Launch) -> Choice:
        """The candidate that a launch runs where nothing is tuned."""
        return self.candidates[0]

    def needs(self, choice: Choice) -> tuple[int, int]:
        """Invocations of a workgroup, and bytes that they share."""
        return choice[0], 0

    def allows(self, launch: Launch, choice: Choice, capabilities: Capabilities) -> bool:
        """Return whether a device can run the launch with this choice."""
        invocations, nbytes = self.needs(choice)
        most = capabilities.max_workgroups
        return (
            invocations <= capabilities.max_invocations
            and nbytes <= capabilities.max_workgroup_bytes
            and max(self.grid(launch, choice, most)) <= most
        )

    def tuned(self, launch: Launch, choice: Choice, capabilities: Capabilities) -> Launch:
        """The launch with this choice; as it is where that is the default, or more than the device allows."""
        if choice == self.default(launch) or not self.allows(launch, choice, capabilities):
            return launch
        grid = self.grid(launch, choice, capabilities.max_workgroups)
        return replace(launch, kernel=_variant(self, launch.kernel, choice), grid=grid)

    def text(self, choice: Choice) -> str:
        """Return a choice as reports show it."""
        return "x".join(map(str, choice))

    @abstractmethod
    def shape_class(self, launch: Launch) -> str:
        """Return the name of a class of shapes that share a choice: sizes rounded up to powers of two, or of four."""

    @abstractmethod
    def variant(self, kernel: Kernel, choice: Choice) -> Kernel:
        """The kernel with this choice."""

    def grid(self, launch: Launch, choice: Choice, most: int) -> tuple[int, int, int]:
        """The workgroups of the launch with this choice."""
        return launch.grid


@cache
def _variant(tunable: Tunable, kernel: Kernel, choice: Choice) -> Kernel:
    return tunable.variant(kernel, choice)


def _up(size: int, bits: int = 1) -> int:
    """The next power of two, or of 2^bits."""
    return 1 << -(-max(0, size - 1).bit_length() // bits) * bits


def _spread(workgroups: int, most: int) -> tuple[int, int, int]:
    """As `Device.dispatch` does for a plain number of workgroups."""
    rows = max(1, -(-workgroups // most))
    return -(-workgroups // rows), rows, 1


class _Cooperative(Tunable):
    """Overrides of a file of ``shaders/kernels``."""

    def variant(self, kernel: Kernel, choice: Choice) -> Kernel:
        return self.with_constants(kernel, dict(zip(self.numbers, choice, strict=True)))

    @staticmethod
    def with_constants(kernel: Kernel, constants: Mapping[str, int]) -> Kernel:
        """The kernel with these overrides."""
        if isinstance(kernel, FusedKernel):
            return fused_kernel(kernel.base.with_constants(constants), kernel.hook, kernel.form, kernel.places)
        return _base_of(kernel).with_constants(constants)


_BY_QUADS: Choice = (0,) * len(SMALL)
_BY_MATRICES: tuple[Choice, ...] = tuple((tile.rows, tile.columns, 0, 0, tile.depth) for tile in MATRIX_TILES)


def _tile(choice: Choice) -> Tile | MatrixTile | None:
    """Return the tile of a choice; None for quads."""
    if choice in _BY_MATRICES:
        return MatrixTile(choice[0], choice[1], choice[4])
    return None if choice == _BY_QUADS else Tile(*choice)


def _base_of(kernel: Kernel) -> SourceKernel:
    base = kernel.base if isinstance(kernel, FusedKernel) else kernel
    assert isinstance(base, SourceKernel)
    return base


class _Products(_Cooperative):
    """Tiles: a larger one reads less, a smaller one leaves less of it empty."""

    name = "matmul"
    numbers = tuple(SMALL.constants())
    candidates = (*TILES, _BY_QUADS, *_BY_MATRICES)

    def default(self, launch: Launch) -> Choice:
        tile = tile_of(_base_of(launch.kernel))
        if isinstance(tile, MatrixTile):
            return tile.rows, tile.columns, 0, 0, tile.depth
        return tile or _BY_QUADS

    def text(self, choice: Choice) -> str:
        return "quads" if choice == _BY_QUADS else super().text(choice)

    def needs(self, choice: Choice) -> tuple[int, int]:
        tile = _tile(choice)
        if isinstance(tile, MatrixTile):
            return tile.invocations, tile.nbytes("f32")
        return (QUAD_INVOCATIONS, 0) if tile is None else (tile.invocations, tile.nbytes)

    def allows(self, launch: Launch, choice: Choice, capabilities: Capabilities) -> bool:
        tile = _tile(choice)
        if isinstance(tile, MatrixTile):
            shape = shape_of(_base_of(launch.kernel))
            fits = shape is not None and tile.fits(shape, capabilities)
            return fits and max(self.grid(launch, choice, 0)) <= capabilities.max_workgroups
        return super().allows(launch, choice, capabilities) and (capabilities.quads or tile is not None)

    def variant(self, kernel: Kernel, choice: Choice) -> Kernel:
        """Operands are read as the kernel reads them; by elements where matrices or quads are replaced by tiles."""
        tile, own = _tile(choice), dict(_base_of(kernel).constants)
        if tile is None:
            return self.with_constants(kernel, {"QUADS": True, "B_STAGING": own.get("B_STAGING", 0)})
        if "QUADS" in own:
            own = {}
        if isinstance(tile, MatrixTile):
            own["MATRICES"] = True
        elif "MATRICES" in own:
            own = {"IN_REGISTERS": True}
        return self.with_constants(kernel, {**own, **tile.constants()})

    def shape_class(self, launch: Launch) -> str:
        rows, columns, inner, _, a_inner_stride, _, b_column_stride = map(int, launch.parameters[:7])
        layout = ("n" if a_inner_stride == 1 else "t") + ("n" if b_column_stride == 1 else "t")
        count = _up(self._count(launch))
        return f"{_up(rows)}x{_up(inner)}x{_up(columns)} {layout}" + (f" {count} times" if count > 1 else "")

    def _count(self, launch: Launch) -> int:
        rows, columns = map(int, launch.parameters[:2])
        return products_of_grid(_base_of(launch.kernel), rows, columns, launch.grid)

    def grid(self, launch: Launch, choice: Choice, most: int) -> tuple[int, int, int]:
        rows, columns = map(int, launch.parameters[:2])
        return *grid_of_products(rows, columns, self._count(launch), _tile(choice)), 1


class _Sums(_Cooperative):
    """Invocations that add up what a workgroup does: more of them where there are few results."""

    name = "sum"
    numbers = ("WORKGROUP",)
    candidates = ((64,), (32,), (128,), (256,))

    def default(self, launch: Launch) -> Choice:
        return (int(_base_of(launch.kernel).constants.get("WORKGROUP", self.candidates[0][0])),)

    def variant(self, kernel: Kernel, choice: Choice) -> Kernel:
        own = {name: value for name, value in _base_of(kernel).constants.items() if name == "SUBGROUPS"}
        return self.with_constants(kernel, {**own, "WORKGROUP": choice[0]})

    def needs(self, choice: Choice) -> tuple[int, int]:
        return choice[0], 8 * choice[0]

    def allows(self, launch: Launch, choice: Choice, capabilities: Capabilities) -> bool:
        groups = int(launch.parameters[3])
        return choice[0] >= groups and super().allows(launch, choice, capabilities)

    def shape_class(self, launch: Launch) -> str:
        rows, columns, inner = map(int, launch.parameters[:3])
        names = [name for name, _ in launch.kernel.parameters]
        length = int(launch.parameters[names.index("segment")]) if "segment" in names else columns
        return f"{_up(rows, 2)} of {_up(length)}" + (" strided" if inner > 1 else "")


class _Maps(Tunable):
    """Map functions of a kind move alike, whatever they compute."""

    name = "map"
    numbers = ("WORKGROUP", "TURNS")
    candidates = (LOOP, (64, 4), (64, 16), (256, 1), (256, 16))

    def shape_class(self, launch: Launch) -> str:
        assert isinstance(launch.kernel, MapKernel)
        kind = "strided" if launch.kernel.places.strided else "flat"
        return f"{_up(int(launch.parameters[0]), 2)} {kind} {len(launch.views)} buffers"

    def variant(self, kernel: Kernel, choice: Choice) -> Kernel:
        assert isinstance(kernel, MapKernel)
        made = MapKernel(kernel.form, kernel.places)
        made.loop = (choice[0], choice[1])
        return made

    def grid(self, launch: Launch, choice: Choice, most: int) -> tuple[int, int, int]:
        return _spread(-(-int(launch.parameters[0]) // (choice[0] * choice[1])), most)


class _Updates(Tunable):
    """Groups of invocations, each with a block of the arena."""

    name = "update"
    numbers = ("WORKGROUP",)
    candidates = ((rule_shell.WORKGROUP,), (128,), (256,))

    def shape_class(self, launch: Launch) -> str:
        return f"{_up(self._blocks(launch) * BLOCK, 2)} {len(launch.views)} buffers"

    def _blocks(self, launch: Launch) -> int:
        pairs = zip(launch.kernel.bindings, launch.views, strict=True)
        return next(view.nbytes for binding, view in pairs if binding.name == "blocks") // 8

    def variant(self, kernel: Kernel, choice: Choice) -> Kernel:
        assert isinstance(kernel, UpdateKernel)
        made = UpdateKernel(kernel.rule, kernel.part, kernel.flags, kernel.stored)
        made.workgroup = choice[0]
        return made

    def grid(self, launch: Launch, choice: Choice, most: int) -> tuple[int, int, int]:
        return _spread(-(-self._blocks(launch) // (choice[0] // rule_shell.GROUP_SIZE)), most)


_PRODUCTS, _SUMS, _MAPS, _UPDATES = _Products(), _Sums(), _Maps(), _Updates()

TUNABLE: dict[str, Tunable] = {tunable.name: tunable for tunable in (_PRODUCTS, _SUMS, _MAPS, _UPDATES)}
"""By name."""

_OF_NAMES: dict[str, Tunable] = {"matmul": _PRODUCTS, "batched_matmul": _PRODUCTS, "sum": _SUMS}


@cache
def tunable_of(kernel: Kernel) -> Tunable | None:
    """Return the family of kernels that this kernel is tuned in; None if it is not tuned."""
    match kernel:
        case SourceKernel(name=name):
            return _OF_NAMES.get(name)
        case FusedKernel(base=base):
            return _OF_NAMES.get(base.name)
        case MapKernel():
            return _MAPS
        case UpdateKernel():
            return None if slot_storage.is_blockwise(kernel.changed_slots.values()) else _UPDATES
    return None
