"""Sums, means and other reductions; and functions along an axis."""

from optirs_web import ops

from .case import Case, functional, np, torch

ANY = [[(3, 4)], [()], [(7,)], [(2, 3, 2)], [(2, 1, 3, 2)]]
SOME = [[(3, 4)], [(7,)], [(2, 3, 3)], [(2, 1, 3, 4)]]
CUBE = [[(3, 4, 5)], [(3, 4, 1, 3)]]


def reduction(name, ours, reference, theirs, shapes=ANY, empty=(), **options):
    """Rows of a function with `axis` and `keepdims`: over all, over one, and over two apart."""
    rows = [Case(name, ours, reference, [*shapes, *empty], theirs, **options)]
    forms = {
        "of the first axis": ([*CUBE, *empty], {"axis": 0}),
        "of a middle axis": (CUBE, {"axis": 1, "keepdims": True}),
        "of two axes apart": (CUBE, {"axis": (0, -1)}),
    }
    for words, (form_shapes, arguments) in forms.items():
        kept = arguments.get("keepdims", False)
        rows.append(
            Case(
                f"{name} {words}",
                lambda a, it=arguments: ours(a, **it),
                lambda a, it=arguments: reference(a, **it),
                form_shapes,
                lambda a, axis=arguments["axis"], kept=kept: theirs(a, dim=axis, keepdim=kept),
                **options,
            )
        )
    return rows


def extremum(name, reference, theirs):
    return reduction(name, getattr(ops, name), reference, theirs, domain="distinct", walks=("transposed", "sliced"))


def place(name, reference, theirs):
    """Return rows of the index of an extremum: over all elements, and along an axis."""
    ours = getattr(ops, name)
    fixed = {"domain": "distinct", "tolerance": 0, "why_not": "is an integer", "walks": ("transposed", "sliced")}
    return [
        Case(name, ours, reference, ANY, theirs, **fixed),
        Case(
            f"{name} along an axis",
            lambda a: ours(a, 1),
            lambda a: reference(a, 1),
            [[(3, 4)], *CUBE, [(2, 3, 2)]],
            lambda a: theirs(a, 1),
            **fixed,
        ),
    ]


# Of equal elements the derivatives are 0, and what is computed of them rounding.
UNEQUAL = ("transposed", "sliced")


def spread(name, reference):
    """Rows of the variance or its root."""
    ours = getattr(ops, name)
    return [
        *reduction(
            name,
            ours,
            lambda a, axis=None, keepdims=False: reference(a, axis=axis, ddof=1, keepdims=keepdims),
            getattr(torch, name),
            SOME,
            domain="distinct",
            walks=UNEQUAL,
            slopes=1e-5,
        ),
        Case(
            f"{name} without correction",
            lambda a: ours(a, -1, correction=0),
            lambda a: reference(a, -1),
            SOME,
            lambda a: getattr(torch, name)(a, dim=-1, correction=0),
            walks=UNEQUAL,
            slopes=1e-5,
        ),
    ]


def log_softmax(x, axis=-1):
    shifted = x - x.max(axis=axis, keepdims=True, initial=0)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def logsumexp(x, axis=None, keepdims=False):
    return np.log(np.exp(x).sum(axis=axis, keepdims=keepdims))


def logsumexp_of_torch(a, dim=None, keepdim=False):
    return torch.logsumexp(a, tuple(range(a.ndim)) if dim is None else dim, keepdim)


def along(name, reference):
    """Rows of the softmax or its logarithm: along the last axis, and along the first."""
    ours, theirs = getattr(ops, name), getattr(functional, name)
    shapes = [[(3, 7)], [(4,)], [(2, 70)], [(2, 3, 2)], [(2, 1, 3, 2)], [(0, 3)]]
    return [
        Case(name, ours, reference, shapes, lambda a: theirs(a, -1), slopes=5e-6),
        Case(
            f"{name} over rows",
            lambda a: ours(a, 0),
            lambda a: reference(a, 0),
            [[(3, 4)], [(3, 2, 2)]],
            lambda a: theirs(a, 0),
            walks=UNEQUAL,
            slopes=5e-6,
        ),
    ]


CASES = [
    *reduction("sum", ops.sum, np.sum, torch.sum, empty=[[(2, 0, 3)]]),
    Case(
        "sum_to",
        lambda a: ops.sum_to(a, (3, 1)),
        lambda a: np.sum(a, -1, keepdims=True).reshape(-1, 3, 1).sum(0),
        [[(3, 4)], [(2, 3, 4)], [(3, 1)], [(3, 0)]],
        lambda a: a.sum_to_size(3, 1),
    ),
    *reduction("mean", ops.mean, np.mean, torch.mean),
    *extremum("max", np.max, torch.amax),
    *extremum("min", np.min, torch.amin),
    *place("argmax", np.argmax, torch.argmax),
    *place("argmin", np.argmin, torch.argmin),
    *spread("var", np.var),
    *spread("std", np.std),
    *reduction("logsumexp", ops.logsumexp, logsumexp, logsumexp_of_torch, slopes=5e-6, walks=UNEQUAL),
    *along("softmax", lambda a, axis=-1: np.exp(log_softmax(a, axis))),
    *along("log_softmax", log_softmax),
]
