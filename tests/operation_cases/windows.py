"""Windows over images: convolutions, the columns that they are made of, and pooling."""

import math

from optirs_web import ops

from .case import Case, functional, np


def taps(x, kernel, stride=(1, 1), padding=(0, 0), dilation=(1, 1), after=None, edge=0.0):
    """The pixels under each tap of each window, (n, channels, taps, height, width)."""
    after = after or padding
    (high, wide), (top, left) = x.shape[2:], padding
    padded = np.full((*x.shape[:2], high + top + after[0], wide + left + after[1]), edge)
    padded[:, :, top : top + high, left : left + wide] = x
    counts = [
        (size - (count - 1) * gap - 1) // step + 1
        for size, count, gap, step in zip(padded.shape[2:], kernel, dilation, stride, strict=True)
    ]
    result = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = np.arange(counts[0]) * stride[0] + i * dilation[0]
            columns = np.arange(counts[1]) * stride[1] + j * dilation[1]
            result.append(padded[:, :, rows[:, None], columns])
    return np.stack(result, 2)


def as_columns(seen):
    n, channels, count, height, width = seen.shape
    return seen.reshape(n, channels * count, height * width)


def correlated(x, weight, bias=None, groups=1, **windows):
    filters, channels, *kernel = weight.shape
    seen = taps(x, kernel, **windows)
    grouped = seen.reshape(len(x), groups, channels, *seen.shape[2:])
    matrices = weight.reshape(groups, filters // groups, channels, -1)
    result = np.einsum("gfct,ngcthw->ngfhw", matrices, grouped).reshape(len(x), filters, *seen.shape[3:])
    return result if bias is None else result + bias[:, None, None]


def convolution(name, shapes, **options):
    """A row of conv2d with arguments that torch takes too."""
    return Case(
        f"conv2d {name}".strip(),
        lambda *them: ops.conv2d(*them, **options),
        lambda *them: correlated(*them, **options),
        shapes,
        lambda *them: functional.conv2d(*them, **options),
        tolerance=2e-6,
        slopes=5e-6,
    )


def transposed(x, weight, bias, size, stride):
    """The transpose of a convolution, pixel by pixel."""
    result = np.zeros((len(x), weight.shape[1], *size))
    for n, c, i, j in np.ndindex(*x.shape):
        rows, columns = i * stride[0], j * stride[1]
        result[n, :, rows : rows + weight.shape[2], columns : columns + weight.shape[3]] += x[n, c, i, j] * weight[c]
    return result + bias[:, None, None]


def folded(columns):
    """Columns of 2 by 2 taps and a stride of 2 by 1, back to images of 4 by 4."""
    images = np.zeros((len(columns), columns.shape[1] // 4, 4, 4))
    for n, row, window in np.ndindex(*columns.shape):
        c, (i, j) = row // 4, divmod(row % 4, 2)
        images[n, c, window // 3 * 2 + i, window % 3 + j] += columns[n, row, window]
    return images


CONVOLUTIONS = [
    convolution(
        "",
        [
            [(2, 3, 5, 6), (4, 3, 3, 2), (4,)],
            [(1, 1, 3, 3), (1, 1, 3, 3), (1,)],
            [(0, 2, 3, 3), (1, 2, 2, 2), (1,)],
        ],
    ),
    convolution("of single pixels", [[(2, 3, 4, 5), (4, 3, 1, 1)]]),
    convolution("with padding", [[(2, 2, 5, 4), (3, 2, 3, 3), (3,)]], padding=(1, 2)),
    convolution("with steps", [[(2, 2, 7, 6), (3, 2, 3, 2), (3,)]], stride=(2, 3), padding=(1, 0)),
    convolution("with gaps", [[(2, 2, 7, 6), (3, 2, 2, 3), (3,)]], dilation=(3, 2), padding=(2, 1)),
    convolution("in groups", [[(2, 4, 4, 5), (6, 2, 3, 3), (6,)]], groups=2),
    convolution("of each channel", [[(2, 3, 4, 4), (6, 1, 2, 2), (6,)]], groups=3),
    Case(
        "conv2d of the same size",
        lambda x, weight: ops.conv2d(x, weight, padding="same", dilation=(1, 2)),
        lambda x, weight: correlated(x, weight, padding=(0, 1), after=(1, 1), dilation=(1, 2)),
        [[(2, 2, 4, 5), (3, 2, 2, 2)]],
        lambda x, weight: functional.conv2d(functional.pad(x, (1, 1, 0, 1)), weight, dilation=(1, 2)),
        tolerance=2e-6,
        slopes=5e-6,
    ),
    Case(
        "conv2d of one image",
        lambda x, weight: ops.conv2d(x, weight, padding="valid"),
        lambda x, weight: correlated(x[None], weight)[0],
        [[(2, 4, 5), (3, 2, 2, 2)]],
        functional.conv2d,
        tolerance=2e-6,
        slopes=5e-6,
    ),
    Case(
        "conv1d",
        lambda x, weight, bias: ops.conv1d(x, weight, bias, 2, 1, 2),
        lambda x, weight, bias: correlated(
            x[:, :, None], weight[:, :, None], bias, stride=(1, 2), padding=(0, 1), dilation=(1, 2)
        )[:, :, 0],
        [[(2, 3, 9), (4, 3, 3), (4,)]],
        lambda x, weight, bias: functional.conv1d(x, weight, bias, 2, 1, 2),
        tolerance=2e-6,
        slopes=5e-6,
    ),
    Case(
        "conv_transpose2d",
        lambda x, weight, bias: ops.conv_transpose2d(x, weight, bias, (2, 1), 0, (1, 0)),
        lambda x, weight, bias: transposed(x, weight, bias, (9, 5), (2, 1)),
        [[(2, 3, 3, 4), (3, 2, 4, 2), (2,)]],
        lambda x, weight, bias: functional.conv_transpose2d(x, weight, bias, (2, 1), 0, (1, 0)),
        tolerance=2e-6,
        slopes=5e-6,
    ),
]

COLUMNS = [
    Case(
        "unfold",
        lambda x: ops.unfold(x, (3, 2), (1, 2), (1, 0), 2),
        lambda x: as_columns(taps(x, (3, 2), (2, 2), (1, 0), (1, 2))),
        [[(2, 3, 5, 6)], [(1, 1, 1, 3)], [(0, 2, 3, 4)]],
        lambda x: functional.unfold(x, (3, 2), (1, 2), (1, 0), 2),
    ),
    Case(
        "fold",
        lambda columns: ops.fold(columns, 4, 2, stride=(2, 1)),
        folded,
        [[(2, 12, 6)], [(1, 4, 6)], [(0, 4, 6)]],
        lambda columns: functional.fold(columns, (4, 4), 2, stride=(2, 1)),
    ),
]

POOLS = [
    Case(
        "max_pool2d",
        lambda x: ops.max_pool2d(x, 2),
        lambda x: taps(x, (2, 2), (2, 2)).max(2),
        [[(2, 3, 4, 5)], [(1, 1, 2, 2)], [(0, 2, 4, 4)]],
        lambda x: functional.max_pool2d(x, 2),
        domain="distinct",
        walks=("transposed", "sliced"),  # the pixels of a repeated axis are equal
    ),
    Case(
        "max_pool2d of windows that overlap",
        lambda x: ops.max_pool2d(x, (3, 2), (1, 2), 1, (2, 1)),
        lambda x: taps(x, (3, 2), (1, 2), (1, 1), (2, 1), edge=-math.inf).max(2),
        [[(2, 2, 6, 5)]],
        lambda x: functional.max_pool2d(x, (3, 2), (1, 2), 1, (2, 1)),
        domain="distinct",
        walks=(),
    ),
    Case(
        "avg_pool2d",
        lambda x: ops.avg_pool2d(x, (3, 2), 2, 1),
        lambda x: taps(x, (3, 2), (2, 2), (1, 1)).mean(2),
        [[(2, 3, 4, 5)], [(1, 1, 1, 1)], [(0, 2, 4, 4)]],
        lambda x: functional.avg_pool2d(x, (3, 2), 2, 1),
    ),
    Case(
        "avg_pool2d without its padding",
        lambda x: ops.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: np.nanmean(taps(x, (3, 3), (2, 2), (1, 1), edge=math.nan), 2),
        [[(2, 3, 4, 5)]],
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    ),
    Case(
        "adaptive_avg_pool2d",
        lambda x: ops.adaptive_avg_pool2d(x, (2, 1)),
        lambda x: x.reshape(2, 3, 2, 2, 3).mean((3, 4))[..., None],
        [[(2, 3, 4, 3)]],
        lambda x: functional.adaptive_avg_pool2d(x, (2, 1)),
    ),
]

CASES = [*CONVOLUTIONS, *COLUMNS, *POOLS]
