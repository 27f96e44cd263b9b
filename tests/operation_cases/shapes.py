"""Operations that return another strided view of the same elements, or move elements."""

from optirs_web import ops

from .case import NOT_IN_ORDER, Case, functional, np, torch

RANKS = [[(3, 4)], [(7,)], [(2, 3, 4)], [(2, 1, 3, 2)], [(2, 0, 3)]]


def of_all(name, call, shapes, torch_too=True, **options):
    """A row of a function that is written the same for our tensors, NumPy's and torch's."""
    return Case(name, call, call, shapes, call if torch_too else None, **options)


WALKS = [
    Case(
        "reshape",
        lambda a: ops.reshape(a, (4, -1)),
        lambda a: a.reshape(4, -1),
        [[(3, 4)], [(4,)], [(2, 3, 2)], [(2, 1, 3, 2)], [(4, 0)]],
        lambda a: a.reshape(4, a.numel() // 4),
    ),
    of_all("reshape to no axes", lambda a: a.reshape(()), [[(1, 1)], [()], [(1,)]], walks=()),
    Case(
        "transpose", lambda a: ops.transpose(a, 0, -1), lambda a: a.swapaxes(0, -1), RANKS, lambda a: a.swapaxes(0, -1)
    ),
    Case(
        "permute",
        lambda a: ops.permute(a, (2, 0, 1)),
        lambda a: a.transpose(2, 0, 1),
        [[(2, 3, 4)], [(0, 2, 3)]],
        lambda a: a.permute(2, 0, 1),
    ),
    Case("permute T", lambda a: a.T, lambda a: a.T, [[(3, 4)], [(7,)], [()], [(2, 3, 4)]]),
    Case(
        "broadcast_to",
        lambda a: ops.broadcast_to(a, (2, 3, 4)),
        lambda a: np.broadcast_to(a, (2, 3, 4)),
        [[(3, 4)], [()], [(4,)], [(1, 3, 1)], [(2, 1, 4)]],
        lambda a: torch.broadcast_to(a, (2, 3, 4)),
    ),
    Case("broadcast_to nothing", lambda a: ops.broadcast_to(a, (0, 3)), lambda a: np.broadcast_to(a, (0, 3)), [[(3,)]]),
    Case(
        "unsqueeze", lambda a: ops.unsqueeze(a, -1), lambda a: a[..., None], [*RANKS, [()]], lambda a: a.unsqueeze(-1)
    ),
    Case(
        "squeeze",
        ops.squeeze,
        lambda a: a.squeeze(),
        [[(3, 1, 4)], [(1, 1)], [(1,)], [()], [(2, 1, 3, 1)], [(1, 0)]],
        torch.squeeze,
        walks=("transposed", "sliced"),  # of a repeated axis more would be left than there is
    ),
    Case("squeeze one", lambda a: ops.squeeze(a, 1), lambda a: a.squeeze(1), [[(3, 1, 1)]], lambda a: a.squeeze(1)),
    Case("flatten", ops.flatten, lambda a: a.reshape(-1), [*RANKS, [()]], torch.flatten),
    Case(
        "flatten inner axes",
        lambda a: ops.flatten(a, 1, -2),
        lambda a: a.reshape(2, 12, 5),
        [[(2, 3, 4, 5)]],
        lambda a: a.flatten(1, -2),
    ),
]

SLICES = {
    "an int": lambda a: a[1],
    "from the end": lambda a: a[-1, ..., -2:],
    "every other": lambda a: a[::2, ..., 1:],
    "new axes": lambda a: a[None, 1:, ..., None],
    "nothing of it": lambda a: a[2:2],
    "all of it": lambda a: a[...],
}

PARTS = [
    *(of_all(f"getitem of {words}", call, [[(3, 4)], [(4, 2, 3)], [(3, 1, 2, 3)]]) for words, call in SLICES.items()),
    of_all("getitem of a vector", lambda a: a[1:6:2], [[(7,)]]),
    of_all("getitem of nothing", lambda a: a[..., 1:], [[(0, 3)], [(2, 0)]], walks=()),
    of_all("getitem backwards", lambda a: a[::-1, 2:0:-1], [[(3, 4)], [(2, 3, 2)]], torch_too=False),
    of_all("getitem by a list", lambda a: a[[2, 0, 2, -1]], [[(3, 4)], [(3,)], [(3, 2, 2)], [(3, 0)]]),
    of_all("getitem by a list and a slice", lambda a: a[1:, [2, 0, 2, -1]], [[(3, 4)], [(2, 3, 2)]]),
    Case("flip", ops.flip, np.flip, [*RANKS, [()]], lambda a: a.flip(tuple(range(a.ndim)))),
    Case("flip one axis", lambda a: ops.flip(a, -1), lambda a: np.flip(a, -1), [[(3, 4)]], lambda a: a.flip(-1)),
    Case(
        "split",
        lambda a: ops.multiply(*ops.split(a, 2, 1)),
        lambda a: np.multiply(*np.split(a, 2, 1)),
        [[(3, 4)], [(2, 6, 2)], [(2, 0)]],
        lambda a: torch.multiply(*a.tensor_split(2, 1)),
    ),
    Case(
        "split unevenly",
        lambda a: ops.matmul(*ops.split(a, [1])),
        lambda a: a[:1] @ a[1:],
        [[(4, 3)]],
        lambda a: a[:1] @ a[1:],
        walks=NOT_IN_ORDER,
    ),
    Case(
        "chunk",
        lambda a: ops.concat(ops.chunk(a, 2)[::-1]),
        lambda a: np.concatenate([a[2:], a[:2]]),
        [[(3, 4)], [(4,)]],
        lambda a: torch.cat(a.chunk(2)[::-1]),
    ),
]

JOINTS = [
    Case(
        "concat",
        lambda a, b: ops.concat([a, b, a], 1),
        lambda a, b: np.concatenate([a, b, a], 1),
        [[(3, 4), (3, 2)], [(2, 1, 3), (2, 2, 3)], [(2, 1, 2, 3), (2, 3, 2, 3)], [(3, 4), (3, 0)], [(0, 2), (0, 1)]],
        lambda a, b: torch.cat([a, b, a], 1),
    ),
    Case(
        "concat of vectors",
        lambda a, b: ops.concat([a, b]),
        lambda a, b: np.concatenate([a, b]),
        [[(3,), (4,)]],
        lambda a, b: torch.cat([a, b]),
    ),
    Case(
        "stack",
        lambda a, b: ops.stack([a, b, a], -1),
        lambda a, b: np.stack([a, b, a], -1),
        [[(3, 4)] * 2, [()] * 2, [(4,)] * 2, [(2, 3, 2)] * 2, [(0, 2)] * 2],
        lambda a, b: torch.stack([a, b, a], -1),
    ),
    Case(
        "pad",
        lambda a: ops.pad(a, 1, 2.5),
        lambda a: np.pad(a, 1, constant_values=2.5),
        [[(3, 4)], [(4,)], [(2, 3, 2)], [(2, 1, 3, 2)], [(0, 2)]],
        lambda a: functional.pad(a, [1] * 2 * a.ndim, value=2.5),
    ),
    Case(
        "pad unevenly",
        lambda a: ops.pad(a, ((0, 2), (1, 0))),
        lambda a: np.pad(a, ((0, 2), (1, 0))),
        [[(3, 4)]],
        lambda a: functional.pad(a, [1, 0, 0, 2]),
    ),
]


def scattered(x, index, source):
    """x with each element of the source added at its index along the last axis."""
    result = x.copy()
    for *front, last in np.ndindex(*index.shape):
        at = (*front, last)
        result[(*front, index[at])] += source[at]
    return result


CHOSEN = [
    Case(
        "take",
        lambda a, index: ops.take(a, index, 1),
        lambda a, index: np.take(a, index, 1),
        [[(3, 5), (4,)], [(2, 5), (2, 3)], [(2, 5, 2), ()], [(2, 5), (0,)], [(0, 5), (2,)]],
        lambda a, index: a[:, index],
        domain=("normal", "below 5"),
    ),
    Case(
        "gather",
        ops.gather,
        lambda a, index: np.take_along_axis(a, index, -1),
        [[(3, 5), (3, 4)], [(5,), (7,)], [(2, 3, 5), (2, 3, 2)], [(2, 1, 2, 5), (2, 1, 2, 3)], [(0, 5), (0, 2)]],
        lambda a, index: torch.gather(a, -1, index),
        domain=("normal", "below 5"),
    ),
    Case(
        "gather along the first axis",
        lambda a, index: ops.gather(a, index, 0),
        lambda a, index: np.take_along_axis(a, index, 0),
        [[(5, 3), (4, 3)], [(5, 2, 2), (2, 2, 2)]],
        lambda a, index: torch.gather(a, 0, index),
        domain=("normal", "below 5"),
    ),
    Case(
        "scatter_add",
        ops.scatter_add,
        scattered,
        [[(3, 5), (3, 4), (3, 4)], [(5,), (7,), (7,)], [(2, 2, 5), (2, 2, 3), (2, 2, 3)], [(2, 5), (2, 0), (2, 0)]],
        lambda x, index, source: torch.scatter_add(x, -1, index, source),
        domain=("normal", "below 5", "normal"),
    ),
    Case(
        "embedding",
        ops.embedding,
        lambda table, index: table[index],
        [[(5, 3), (4,)], [(5, 3), (2, 3)], [(5, 2), ()], [(5, 2), (0,)], [(5, 2), (2, 1, 3)]],
        lambda table, index: table[index],
        domain=("normal", "below 5"),
    ),
]

CASES = [*WALKS, *PARTS, *JOINTS, *CHOSEN]
