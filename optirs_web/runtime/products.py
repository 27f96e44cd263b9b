"""Matrix products: which kernel a device is given for a shape, and the workgroups of a launch.

Three families are in one file, ``shaders/kernels/matmul.wgsl`` (and ``batched_matmul.wgsl``), and give the same sums in
another order: tiles staged in workgroup memory for GPUs, quads for adapters that compute on the processor, and subgroup
matrices where the user asks for them (`subgroup_matrices`). ``shaders/kernels/convolution.wgsl`` multiplies by the same
tiles, ``convolution_band.wgsl`` by tiles of its own, and ``convolution_quads.wgsl`` by the same quads.

Only an NVIDIA H100 was measured, on Vulkan and OpenCL alike. There tiles of 32x32 take 0.70 of the time of 64x64 for a
product of 512, so discrete GPUs are given larger tiles only where there are 128 of them; those of 64x64 with 8x4 each
are faster than with 4x4, and from 2,048 on take 0.91 to 0.97 of the time of 128x64, which won published comparisons on
other cards and stays. The tiles of the other classes are those that won there, the largest first. With few tiles and a
long inner axis GPUs multiply parts of that axis in parallel (`inner_parts`), and the products are added up afterwards,
in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ShaderError
from .backend import AdapterInfo, Backend, Capabilities, Handle
from .kernels import CooperativeKernel, SourceKernel, cooperative

if TYPE_CHECKING:
    from .subgroup_matrices import MatrixTile

__all__ = [
    "LEAST_BY_VECTORS",
    "LEAST_PART",
    "QUAD_INVOCATIONS",
    "SMALL",
    "TILES",
    "TILE_CLASSES",
    "ProductLaunch",
    "Staging",
    "Tile",
    "TileClass",
    "ask_for_quads",
    "band_kernel",
    "band_launch",
    "by_quads",
    "by_tiles",
    "convolution_by_tiles",
    "convolution_launch",
    "grid_of_products",
    "inner_parts",
    "is_refusal_of_quads",
    "longest_inner_axis",
    "longest_side",
    "note_quads",
    "product_launches",
    "products_of_grid",
    "staging_of",
    "stagings_of",
    "tile_class",
    "tile_of",
]

_QUAD_TILE, _QUADS = 16, 4  # of shaders/lib/quads.wgsl
QUAD_INVOCATIONS = 4 * _QUADS  # of a workgroup
LEAST_BY_VECTORS = 1 << 21
"""Multiply-adds of a product by quads from which on B is read by vectors.

That takes 0.8 of the time, but one more kernel, which costs what hundreds of smaller products would save.
"""
_LANES = "quad_lanes"
"""Counts the invocations whose neighbours in a quad are not those that `shaders/lib/quads.wgsl` assumes."""


class Staging(IntEnum):
    """How `shaders/lib/tile.wgsl` reads an operand, and stores it in workgroup memory."""

    BY_ELEMENTS = 0
    BY_DEPTH = 1
    ACROSS = 2


class Tile(NamedTuple):
    """A member of the family of tiles.

    Attributes:
        rows: of a workgroup.
        columns: of a workgroup.
        own_rows: of an invocation.
        own_columns: of an invocation.
        depth: columns of A and rows of B that are staged at a time.
    """

    rows: int
    columns: int
    own_rows: int
    own_columns: int
    depth: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}, {self.own_rows}x{self.own_columns} each, {self.depth} deep"

    @property
    def invocations(self) -> int:
        """The number of invocations of a workgroup."""
        return self.rows // self.own_rows * (self.columns // self.own_columns)

    @property
    def nbytes(self) -> int:
        """The most that the invocations of a workgroup share, in whatever way the operands are staged."""

        def most(size: int) -> int:
            return max(size * (self.depth // 4 + 1), self.depth * (size // 4 + 1))

        return 16 * (most(self.rows) + most(self.columns))

    def fits(self, capabilities: Capabilities) -> bool:
        """Return whether a device allows the invocations and the shared bytes of a workgroup."""
        return self.invocations <= capabilities.max_invocations and self.nbytes <= capabilities.max_workgroup_bytes

    def constants(self) -> dict[str, int]:
        """The overrides of `shaders/lib/tile.wgsl`."""
        names = ("TILE_ROWS", "TILE_COLUMNS", "OWN_ROWS", "OWN_COLUMNS", "DEPTH")
        return dict(zip(names, self, strict=True))


SMALL = Tile(32, 32, 4, 4, 8)
"""The default of `shaders/lib/tile.wgsl`: compilers for processors take long for more."""

_32, _64, _128 = Tile(32, 32, 4, 4, 16), Tile(64, 64, 4, 4, 16), Tile(128, 64, 8, 4, 16)
_64_BY_8 = Tile(64, 64, 8, 4, 16)
_WIDEST = Tile(128, 128, 8, 8, 8)

TILES = (SMALL, Tile(16, 16, 4, 4, 4), _32, _64, _64_BY_8, _128, _WIDEST)
"""All that can be chosen."""


_LONGEST_STEP = max(tile.depth for tile in TILES)


class TileClass(NamedTuple):
    """The tiles of a class of adapters.

    Attributes:
        tiles: the largest first. The last is taken where no other suits the shape.
        workgroups: how many a product has to have by a tile, lest a smaller one is taken.
        occupied: workgroups that occupy such an adapter. With fewer of its smallest tile a product has its inner axis
            cut, and a convolution is not by bands.
    """

    tiles: tuple[Tile, ...]
    workgroups: int
    occupied: int


TILE_CLASSES = {
    "software": TileClass((SMALL,), 0, 0),
    "integrated": TileClass((_64, _32), 16, 16),
    "apple": TileClass((_128, _64, _32), 32, 32),
    "discrete": TileClass((_128, _64_BY_8, _32), 128, 64),
    "intel": TileClass((_64, _32), 64, 64),  # discrete too: sums of 8x4 leave its registers no room for two workgroups
    "d3d12": TileClass((_WIDEST, _64, _32), 64, 64),
}
"""By the classes of `Capabilities.tiles`."""

LEAST_PART = 256
"""The shortest part of an inner axis, as in onnxruntime's WebGPU kernels, which were measured on GPUs."""

_WORKGROUPS_OF_PARTS = 4
"""Workgroups of the smallest tile per workgroup that occupies a class: enough for a tile of twice its sides."""

_WIDEST_OF_PIXELS = 64
"""The most rows of a tile whose B is staged pixel by pixel: larger ones lost 10% to 40% in published comparisons."""

# Of convolutions by bands.
_BAND_WINDOWS = 64  # of a workgroup
_BAND_FILTERS = (64, 32)  # of a workgroup; an invocation has four windows and four filters
_REGION_WIDTHS = (8, 16, 32, 64)  # the first reads the fewest pixels
_LEAST_FILLED = 0.8
"""The smallest share of computed windows that are on images. Tiles compute no others, but find and read a pixel for
each tap: multiply-adds are 66% of their code on sm_90, and 78% of that of bands."""

_VENDORS = {"8086": "intel", "106b": "apple"}  # by PCI numbers


def tile_class(info: AdapterInfo, *, is_d3d12: bool = False) -> str:
    """The class of an adapter that was just opened, for `Capabilities.tiles`.

    Args:
        info: the adapter.
        is_d3d12: its shaders go through Direct3D 12, which the name "dx12" says too.
    """
    words = f"{_VENDORS.get(info.adapter.partition(':')[0], '')} {info.description}".lower()
    if info.software or info.kind in ("software", "cpu"):
        return "software"
    if "apple" in words:
        return "apple"
    if "intel" in words:
        return "intel" if info.kind == "discrete" else "integrated"
    if info.kind == "integrated":
        return "integrated"
    if is_d3d12 or info.name == "dx12":
        return "d3d12"
    is_known = info.kind in ("discrete", "virtual") or any(vendor in words for vendor in ("nvidia", "amd", "radeon"))
    return "discrete" if is_known else "integrated"  # phones, and browsers that do not tell


class ProductLaunch(NamedTuple):
    """A launch for some of the products of a batch.

    Attributes:
        kernel: what runs.
        first: the number of the first product.
        products: how many of them.
        grid: workgroups along x and y.
    """

    kernel: CooperativeKernel
    first: int
    products: int
    grid: tuple[int, int]


def product_launches(
    name: str,
    capabilities: Capabilities,
    layout: Sequence[int],
    products: int = 1,
    starts: tuple[Iterable[int], Iterable[int]] | None = None,
    is_float16: bool = False,
) -> Iterator[ProductLaunch]:
    """The launches of the kernel `name`.

    Args:
        name: "matmul" or "batched_matmul".
        capabilities: of the device.
        layout: rows, columns, inner; the row stride and the inner stride of A, the inner and the column stride of B.
        products: how many of them.
        starts: where the matrices A and B begin, or numbers of which sums are; None where elements have 16 bits.
        is_float16: the elements of both matrices are float16.
    """
    rows, columns, most = layout[0], layout[1], capabilities.max_workgroups
    tile: Tile | MatrixTile = SMALL
    kernel = None
    if capabilities.matrices:
        from .subgroup_matrices import kernel_by_matrices  # rarely needed

        by_matrices = kernel_by_matrices(name, capabilities, rows, columns, is_float16)
        if by_matrices is not None:
            kernel, tile = by_matrices
            width, height = grid_of_products(rows, columns, 1, tile)
    elif capabilities.quads:
        width, height = grid_of_products(rows, columns, 1, None)
        is_large = products * rows * columns * layout[2] >= LEAST_BY_VECTORS
        staging = stagings_of(layout, starts)[1] if is_large else Staging.BY_ELEMENTS
        kernel = by_quads(name, staging) if width <= most else None
    if kernel is None:
        if capabilities.tiles == "software":
            kernel = cooperative(name)
        else:
            tile = _tile_for(capabilities, rows, columns, products)
            kernel = by_tiles(name, tile, *stagings_of(layout, starts))
        width, height = grid_of_products(rows, columns, 1, tile)
    at_once = max(1, most // height)
    for first in range(0, products, at_once):
        count = min(at_once, products - first)
        yield ProductLaunch(kernel, first, count, (width, height * count))


def longest_side(capabilities: Capabilities) -> int:
    """Rows or columns of a product that the workgroups of a launch can cover."""
    return SMALL.rows * capabilities.max_workgroups


def longest_inner_axis(capabilities: Capabilities) -> int:
    """Products that an invocation may add up: in half its iterations, each of which adds 4 or more."""
    return (capabilities.max_iterations + 1) // 2 * 4


def inner_parts(capabilities: Capabilities, rows: int, columns: int, inner: int, products: int) -> int:
    """Return the length of the parts that the inner axis is cut into; the last may be shorter.

    A product whose smallest tiles are fewer than occupy its class of adapters leaves most processors of a GPU idle.
    The number of parts follows from `_WORKGROUPS_OF_PARTS`, and was not measured. The products of all parts take the
    memory of a smallest tile for each workgroup. Where a library multiplies, nothing is cut.

    Returns:
        A multiple of the depth of all tiles; `inner` where it is not cut.
    """
    tiles, _, occupied = TILE_CLASSES[capabilities.tiles]
    across, down = grid_of_products(rows, columns, products, tiles[-1])
    if capabilities.quads or "matmul" in capabilities.replaced or across * down >= occupied:
        return inner
    parts = min(inner // LEAST_PART, 1 << (_WORKGROUPS_OF_PARTS * occupied // (across * down) - 1).bit_length())
    return inner if parts < 2 else -(-inner // (parts * _LONGEST_STEP)) * _LONGEST_STEP


def _tile_for(capabilities: Capabilities, rows: int, columns: int, products: int, widest: int = 128) -> Tile:
    """Return the largest tile of at most `widest` rows that is more than half full, and of which there are enough."""
    *larger, last = TILE_CLASSES[capabilities.tiles].tiles
    for tile in (tile for tile in larger if tile.rows <= widest):
        across, down = grid_of_products(rows, columns, products, tile)
        is_filled = tile.rows < 2 * rows and tile.columns < 2 * columns
        if is_filled and across * down >= TILE_CLASSES[capabilities.tiles].workgroups and tile.fits(capabilities):
            return tile
    return last


def convolution_launch(
    capabilities: Capabilities, rows: int, columns: int, products: int, staging: Staging, *, along_depth: bool
) -> tuple[CooperativeKernel, int, tuple[int, int]]:
    """Return the kernel of a convolution, the most columns that a launch computes, and the grid for these columns.

    Args:
        capabilities: of a device whose products are by the tiles of GPUs.
        rows: of the product of a group.
        columns: of the product of a group.
        products: groups times parts.
        staging: of A.
        along_depth: ALONG_DEPTH, see ``shaders/kernels/convolution.wgsl``.
    """
    tile = _tile_for(capabilities, rows, columns, products, _WIDEST_OF_PIXELS)
    kernel = convolution_by_tiles(tile, staging, along_depth=along_depth)
    width, height = grid_of_products(rows, columns, products, tile)
    width = min(width, capabilities.max_workgroups)
    return kernel, width * tile.columns, (width, height)


def band_launch(
    capabilities: Capabilities, filters: int, windows: tuple[int, int], times: int, groups: int, **flags: bool
) -> tuple[CooperativeKernel, tuple[int, int]] | None:
    """Return the kernel and the grid of a convolution by bands; None where tiles suit it better.

    Args:
        capabilities: of a device whose products are by the tiles of GPUs.
        filters: of a group.
        windows: on an image, along its height and its width.
        times: number of images.
        groups: of filters.
        flags: of ``shaders/kernels/convolution_band.wgsl``.
    """
    height, width = windows

    def regions_of(region_width: int) -> int:
        return -(-width // region_width) * -(-height // (_BAND_WINDOWS // region_width))

    region_width = min(_REGION_WIDTHS, key=regions_of)
    regions = regions_of(region_width)
    if height * width < _LEAST_FILLED * regions * _BAND_WINDOWS or times * regions > capabilities.max_workgroups:
        return None
    for rows in _BAND_FILTERS:
        tiles = -(-filters // rows) * groups
        is_enough = times * regions * tiles >= TILE_CLASSES[capabilities.tiles].occupied
        if rows < 2 * filters and is_enough and 4 * rows <= capabilities.max_invocations:
            return band_kernel(rows, region_width, **flags), (times * regions, tiles)
    return None


def band_kernel(rows: int, region_width: int, **flags: bool) -> CooperativeKernel:
    """Return the kernel of convolutions by bands; see `band_launch`."""
    return cooperative("convolution_band", TILE_ROWS=rows, REGION_WIDTH=region_width, **flags)


@cache
def convolution_by_tiles(tile: Tile, a: Staging, *, along_depth: bool) -> CooperativeKernel:
    """Return the kernel of convolutions by tiles; see `convolution_launch`."""
    return cooperative("convolution", **tile.constants(), A_STAGING=int(a), IN_REGISTERS=True, ALONG_DEPTH=along_depth)


@cache
def by_quads(name: str, b: Staging) -> CooperativeKernel:
    """Return the kernel `name` by quads, as software adapters run it, with B read as `b` says."""
    return cooperative(name, QUADS=True, B_STAGING=int(b))


@cache
def by_tiles(name: str, tile: Tile, a: Staging, b: Staging) -> CooperativeKernel:
    """The kernel of that name as GPUs are given it."""
    return cooperative(name, **tile.constants(), A_STAGING=int(a), B_STAGING=int(b), IN_REGISTERS=True)


def stagings_of(layout: Sequence[int], starts: tuple[Iterable[int], Iterable[int]] | None) -> tuple[Staging, Staging]:
    """How both operands are read: by vectors where all begin at multiples of four elements of a buffer.

    A view that a kernel is given begins at a multiple of 16 bytes (`Capabilities.offset_alignment`).

    Example:
        >>> [one.name for one in stagings_of((64, 10, 8, 8, 1, 10, 1), ([0], [0]))]
        ['BY_DEPTH', 'BY_ELEMENTS']
    """
    if starts is None:
        return Staging.BY_ELEMENTS, Staging.BY_ELEMENTS
    rows, columns, inner, a_row, a_inner, b_inner, b_column = layout
    a_starts, b_starts = starts
    return staging_of(inner, a_inner, rows, a_row, a_starts), staging_of(inner, b_inner, columns, b_column, b_starts)


def staging_of(inner: int, inner_stride: int, across: int, across_stride: int, starts: Iterable[int]) -> Staging:
    """Return how an operand is read, given its lengths and strides along both axes, and where it begins."""

    def is_regular(length: int, stride: int, others: int, other_stride: int) -> bool:
        return stride == 1 and length > 0 and length % 4 == 0 and (other_stride % 4 == 0 or others == 1)

    if any(start % 4 for start in starts):
        return Staging.BY_ELEMENTS
    if is_regular(inner, inner_stride, across, across_stride):
        return Staging.BY_DEPTH
    return Staging.ACROSS if is_regular(across, across_stride, inner, inner_stride) else Staging.BY_ELEMENTS


def grid_of_products(rows: int, columns: int, products: int, tile: Tile | MatrixTile | None) -> tuple[int, int]:
    """Workgroups along x and y by a tile, or by quads if it is None."""
    if tile is None:
        return -(-(-(-rows // _QUAD_TILE) * -(-columns // _QUAD_TILE)) // _QUADS), products
    return -(-columns // tile.columns), -(-rows // tile.rows) * products


def tile_of(kernel: SourceKernel) -> Tile | MatrixTile | None:
    """The tile of a kernel; None if it is by quads."""
    if "QUADS" in kernel.constants:
        return None
    if "MATRICES" in kernel.constants:
        from .subgroup_matrices import MatrixTile  # rarely needed

        return MatrixTile(*(int(kernel.constants[name]) for name in ("TILE_ROWS", "TILE_COLUMNS", "DEPTH")))
    return Tile(*(int(kernel.constants.get(name, value)) for name, value in SMALL.constants().items()))


def products_of_grid(kernel: SourceKernel, rows: int, columns: int, grid: Sequence[int]) -> int:
    """How many products a launch of the kernel computes."""
    return grid[1] // grid_of_products(rows, columns, 1, tile_of(kernel))[1]


def ask_for_quads(backend: Backend) -> Handle | None:
    """Have a device that was just opened count what `note_quads` needs to know, into memory of 4 bytes.

    Returns:
        The memory; None where it does not matter, as products by quads are for adapters that compute on the processor,
        and where the device's compiler refuses quads.

    Raises:
        ShaderError: the kernel itself is wrong.
    """
    if not backend.info.software or "subgroups" not in backend.capabilities.features:
        return None
    kernel, counted = cooperative(_LANES), backend.allocate(4)
    try:
        backend.submit([backend.bind(kernel, [(counted, 0, 4)], b"", (1, 1, 1))])
    except ShaderError as error:
        backend.free(counted)
        if not is_refusal_of_quads(error):
            raise
        return None
    return counted


def is_refusal_of_quads(error: ShaderError) -> bool:
    """Return whether a device's compiler refused what `ask_for_quads` runs.

    Its errors name the kernel; those of `optirs_web.wgsl` name the file.
    """
    return error.file == _LANES


def note_quads(backend: Backend, counted: Handle, differences: memoryview) -> None:
    """Set `Capabilities.quads` by what was counted."""
    backend.free(counted)
    backend.capabilities = replace(backend.capabilities, quads=not any(differences))
