"""Kernels over windows: each against its definition, tap by tap; and what is refused."""

import itertools

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.kernel import Kernel, Part, Read, Write
from optirs_web.lower.windows import WindowAxis
from optirs_web.ops.row_kernels import SOFTMAX, SUM, SUM_OF_TWO, extremum_form
from optirs_web.ops.window_kernels import CHOSEN_PIXELS, named_window_kernels
from optirs_web.runtime.form_kernels import form_kernel

PLANES = 3
FIRST, FIRST_RESULT = 2, 1
"""Planes of operands and of results before those that a launch is about."""

AXES = [
    WindowAxis(grid=5, size=5, taps=3, step=1, start=-1, spacing=1, tap_step=1),  # shifted
    WindowAxis(grid=4, size=7, taps=2, step=2, start=0, spacing=1, tap_step=1),
    WindowAxis(grid=3, size=6, taps=4, step=3, start=-5, spacing=1, tap_step=3),  # reaches over both ends
    WindowAxis(grid=7, size=4, taps=2, step=1, start=0, spacing=2, tap_step=-1),
    WindowAxis(grid=9, size=3, taps=3, step=1, start=4, spacing=6, tap_step=-4),  # some taps are over no element
    WindowAxis(grid=9, size=3, taps=3, step=2, start=-4, spacing=3, tap_step=2),
    WindowAxis(grid=20, size=18, taps=9, step=1, start=2, spacing=1, tap_step=-2),
    WindowAxis(grid=1, size=12, taps=12, step=1, start=0, spacing=1, tap_step=1),  # all of it
    WindowAxis(grid=2, size=1, taps=2, step=1, start=-3, spacing=1, tap_step=5),  # windows with no element
]
PAIRS = list(itertools.product(AXES, AXES))


def under_taps(axes):
    """Yield for each window of a plane its place, and the elements under its taps: row and column, or None."""
    numbers = []
    for axis in axes:
        positions = np.arange(axis.grid)[:, None] * axis.step + axis.start + np.arange(axis.taps) * axis.tap_step
        is_there = (positions % axis.spacing == 0) & (positions >= 0) & (positions < axis.size * axis.spacing)
        numbers.append(np.where(is_there, positions // axis.spacing, -1))
    for place in np.ndindex(*(axis.grid for axis in axes)):
        taps = itertools.product(numbers[0][place[0]], numbers[1][place[1]])
        yield place, [(row, column) if row >= 0 and column >= 0 else None for row, column in taps]


def defined(name, axes, x, places=None):
    """Return what a kernel writes by its definition; x is (planes, taps, height, width), perhaps with one tap."""
    taps, grid = axes[0].taps * axes[1].taps, tuple(axis.grid for axis in axes)
    result = np.zeros((len(x), taps, *grid) if name == "unfold" else (len(x), *grid))
    found = np.full((len(x), *grid), -1, np.int32)
    for plane, (place, elements) in itertools.product(range(len(x)), under_taps(axes)):
        there = {tap: at for tap, at in enumerate(elements) if at is not None}
        values = {tap: float(x[(plane, tap % x.shape[1], *at)]) for tap, at in there.items()}
        at = (plane, *place)
        if name == "unfold":
            for tap, value in values.items():
                result[(plane, tap, *place)] = value
        elif name == "window_largest":
            nan = [tap for tap, value in values.items() if np.isnan(value)]
            found[at] = nan[-1] if nan else max(values, key=lambda tap: (values[tap], -tap), default=-1)
            result[at] = values.get(int(found[at]), -np.inf)
        elif name == "chosen_pixels":
            result[at] = values.get(int(places[at]), 0)
        elif name == "to_chosen_pixels":
            result[at] = sum(value for tap, value in values.items() if places[(plane, *there[tap])] == tap)
        else:
            result[at] = sum(values.values())
    return (result, found) if name == "window_largest" else (result,)


@pytest.mark.parametrize("name", named_window_kernels())
def test_a_kernel_writes_what_it_is_defined_to(name, numerics):
    rng = np.random.default_rng(0)
    calls, wanted = [], []
    for axes in PAIRS:
        if name == "unfold" and any(axis.spacing > 1 for axis in axes):  # for which copies are not
            continue
        operands, want = made_up(rng, name, axes)
        shapes = [(FIRST_RESULT + len(array), *array.shape[1:]) for array in want]
        elements = axes[0].size * axes[1].size
        strides = (axes[0].taps * axes[1].taps * elements, elements) if name == "fold" else None
        calls.append((operands, shapes, (axes, PLANES, strides, FIRST, FIRST_RESULT)))
        wanted.append(want)
    for call, want, results in zip(calls, wanted, numerics("over_windows", name, calls), strict=True):
        for array, got in zip(want, results, strict=True):
            got = np.asarray(got).reshape(-1, *array.shape[1:])
            assert (got[:FIRST_RESULT] == 7).all()
            np.testing.assert_allclose(got[FIRST_RESULT:], array, rtol=1e-6, atol=1e-5, err_msg=f"{call[2]}")


def made_up(rng, name, axes):
    """Return operands, with planes before those that a launch is about, and what they give."""
    grid, plane = (tuple(axis.grid for axis in axes), tuple(axis.size for axis in axes))
    taps = axes[0].taps * axes[1].taps
    x = rng.standard_normal((FIRST + PLANES, taps if name == "fold" else 1, *plane)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = 0.0
    if name == "window_largest":
        x[rng.random(x.shape) < 0.1] = -np.inf
        x[rng.random(x.shape) < 0.03] = np.nan
    if name == "chosen_pixels":
        places = rng.integers(-1, taps, (PLANES, *grid)).astype(np.int32)
        return [x, places], defined(name, axes, x[FIRST:], places)
    if name == "to_chosen_pixels":
        places = chosen_places(rng, axes, (FIRST + PLANES, *plane))
        return [x, places], defined(name, axes, x[FIRST:], places[FIRST:])
    return [x], defined(name, axes, x[FIRST:])


def chosen_places(rng, axes, shape):
    """Return for each element a tap that is over it; or -1, for some, and where there is none."""
    over = {at: [-1] for at in np.ndindex(*shape[1:])}
    for _, elements in under_taps(axes):
        for tap, at in enumerate(elements):
            if at is not None:
                over[at].append(tap)
    places = np.empty(shape, np.int32)
    for plane, row, column in np.ndindex(*shape):
        places[plane, row, column] = rng.choice(over[row, column])
    return places


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.max_pool2d(x, 4, 1, 2),
        lambda x: ops.avg_pool2d(x, 4, 1, 2),
        lambda x: ops.unfold(x, 4, 1, 2),
        lambda x: ops.conv2d(x, ow.ones((3, 2, 4, 4), device=x.device), None, 1, 2),
    ],
)
def test_images_without_pixels_are_refused(call, device):
    with pytest.raises(ShapeError, match=r"needs images with pixels, not \(1, 2, 0, 4\)"):
        call(ow.zeros((1, 2, 0, 4), device=device))


@pytest.mark.parametrize(
    "call", [lambda x: ops.max_pool2d(x, 2), lambda x: ops.avg_pool2d(x, 2), lambda x: ops.unfold(x, 2)]
)
def test_no_images_have_no_results_and_no_gradients(call, device):
    x = ow.zeros((0, 2, 4, 4), device=device)
    x.requires_grad = True
    y = call(x)
    g = ow.ones(y.shape, device=device)
    g.requires_grad = True
    (to_x,) = ow.gradients(y, [x], g, create_graph=True)
    (by_g,) = ow.gradients(to_x, [g], ow.ones(x.shape, device=device))
    assert (y.shape[0], to_x.shape, by_g.shape) == (0, x.shape, y.shape)


def test_a_stride_beyond_int32_is_refused(device):
    with pytest.raises(ShapeError, match=f"stride must be at most {2**31 - 1}, not {2**33}"):
        ops.max_pool2d(ow.zeros((1, 2, 4, 4), device=device), 1, 2**33)


def test_windows_that_hold_no_pixel_have_no_largest_one(device):
    x, g = ow.full((1, 1, 1, 1), 3.0, device=device), ow.ones((1, 1, 1, 1), device=device)
    x.requires_grad = g.requires_grad = True
    largest = ops.max_pool2d(x, 2, 1, 1, 2)  # both taps along an axis are outside the image
    (to_x,) = ow.gradients(largest, [x], g, create_graph=True)
    (by_g,) = ow.gradients(to_x, [g], ow.full(x.shape, 7.0, device=device))
    assert (largest.item(), to_x.item(), by_g.item()) == (-np.inf, 0, 0)


def test_what_no_lowering_over_windows_has_is_refused():
    smallest = extremum_form("f32", is_smallest=True, gives="both", has_places=False)
    value = extremum_form("f32", is_smallest=False, gives="value", has_places=False)
    part, written = Part("squares", over=(-1,)), Write("squares", "result")
    squares = Kernel("squares", ("rows", "layer_norm"), 2, (Read("centred"),), (part,), (written,))
    integers = extremum_form("i32", is_smallest=False, gives="both", has_places=False)
    of_window = Kernel("of_window", SUM.file, 2, (Read("x", over=(-1,)),), (), (Write("x", "result"),))
    unused = Kernel("unused", SUM.file, 2, (Read("y"), Read("x")), SUM.parts, SUM.writes)
    numbered = Kernel("numbered", SUM.file, 2, SUM.reads, SUM.parts, SUM.writes, {"eps": "f32"})
    for kernel in (SOFTMAX, SUM_OF_TWO, smallest, value, squares, integers, of_window, unused, numbered):
        message = f"kernel '{kernel.name}': over windows it has to add up what it reads"
        with pytest.raises(UnsupportedError, match=message):
            form_kernel(kernel, "windows")


def test_elements_are_combined_by_place_over_windows_alone():
    with pytest.raises(UnsupportedError, match="'chosen_pixels': it has to reduce the rows of a matrix"):
        form_kernel(CHOSEN_PIXELS)


def test_the_place_of_an_element_is_a_value():
    with pytest.raises(ValueError, match="sum needs 'place'"):
        _ = Kernel("tried", SUM.file, 2, SUM.reads, CHOSEN_PIXELS.parts, SUM.writes).values
