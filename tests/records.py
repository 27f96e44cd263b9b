"""What torch and optax compute of the cases of the tables, recorded: `make test` compares with it without either.

Of each array every so many elements are kept, behind its largest magnitude. With both installed

    python tests/records.py

writes `records.npz` anew; `tests/test_records.py` finds what no longer is what they compute.
"""

from functools import cache
from pathlib import Path

import numpy as np
from optimizer_cases import CASES, DRIVEN_CASES, SPARSE_CASES
from optimizer_problems import make_problem
from optimizer_references import result_of
from schedule_cases import EDGES, OPTAX_NAMES, TORCH, schedule

__all__ = [
    "COMPUTED",
    "DRIVEN",
    "OPTIMIZERS",
    "SCHEDULE_STEPS",
    "assert_recorded",
    "computed",
    "in_record",
    "parameters_of",
]

FILE = Path(__file__).with_name("records.npz")
MOST, SCHEDULE_STEPS = 32, 1000

OPTIMIZERS = [case for case in CASES if case.source == "torch" or case.source.startswith("optax_twins.")]
DRIVEN = [case for case in DRIVEN_CASES if case.source == "torch"]


def parameters_of(case):
    """The options of a scheduler's optimizer that it sets: the rate, and the momentum where there are two."""
    return ["lr", "beta1" if case.optimizer == "AdamW" else "momentum"]


def _sparse(case):
    from optimizer_references import sparse
    from test_sparse_optimizers import make_problem as make_sparse_problem

    return sparse.run(*make_sparse_problem(case.shapes), name=case.optimizer, **case.options)


def _driven(case):
    from optimizer_references import driven
    from test_driven_optimizers import in_float64

    return getattr(driven, case.run.__name__)(*in_float64(), case.steps, **case.options)


def _torchs(case):
    import torch
    from schedule_problems import torchs, values_of

    optimizer = torchs(torch, case.optimizer)
    scheduler = case.make(torch.optim.lr_scheduler, optimizer)
    values = [values_of(optimizer, *parameters_of(case))]
    for _ in range(SCHEDULE_STEPS):
        scheduler.step()
        values.append(values_of(optimizer, *parameters_of(case)))
    return list(np.transpose(values)), []


def _optaxs(name):
    import jax
    import optax

    with jax.enable_x64(True):
        theirs = schedule(name, optax.schedules)
        return [np.array([float(theirs(np.float64(count))) for count in range(1 + SCHEDULE_STEPS)])], []


COMPUTED = {
    **{
        f"optimizer {case.name}": (lambda case: result_of(case, *make_problem(case.shapes, case.steps)), case)
        for case in OPTIMIZERS
    },
    **{f"sparse {case.name}": (_sparse, case) for case in SPARSE_CASES},
    **{f"driven {case.name}": (_driven, case) for case in DRIVEN},
    **{f"scheduler {case.name}": (_torchs, case) for case in [*TORCH, *EDGES]},
    **{f"schedule {name}": (_optaxs, name) for name in OPTAX_NAMES},
}
"""By its key what a library computes: a function that gives arrays and dicts of state, and its argument."""


def _named(key, arrays, states):
    yield from ((f"{key}/{index}", one) for index, one in enumerate(arrays))
    for index, state in enumerate(states):
        yield from ((f"{key}/{index}/{name}", one) for name, one in state.items())


def sampled(array):
    """The largest magnitude of an array, and some of its elements, at most MOST."""
    flat = np.ravel(np.asarray(array, np.float64))
    return np.concatenate([[np.abs(flat).max(initial=0)], flat[:: max(1, -(-flat.size // MOST))]])


def computed(key):
    """What the library computes now, by the names in the record."""
    function, argument = COMPUTED[key]
    return {name: sampled(one) for name, one in _named(key, *function(argument))}


@cache
def _record():
    with np.load(FILE) as record:
        parts = np.split(record["values"].astype(np.float64), np.cumsum(record["sizes"])[:-1])
        return dict(zip(record["names"].tolist(), parts, strict=True))


def in_record(key):
    """What is recorded, by name."""
    return {name: values for name, values in _record().items() if name.startswith(f"{key}/")}


def assert_recorded(key, arrays, states, tolerance, state_tolerance=None):
    """Arrays and states are those of the record, relative to the largest magnitude of each."""
    want = in_record(key)
    got = {name: sampled(one) for name, one in _named(key, arrays, states)}
    assert {name for name in got if name.count("/") == 1} <= want.keys()
    for name in want.keys() & got.keys():
        error = np.abs(got[name] - want[name]).max()
        bound = tolerance if name.count("/") == 1 else state_tolerance
        assert error <= (bound + 1e-7) * want[name][0], name


if __name__ == "__main__":
    found = {name: one.astype(np.float32) for key in COMPUTED for name, one in computed(key).items()}
    sizes = [one.size for one in found.values()]
    np.savez_compressed(FILE, names=list(found), sizes=sizes, values=np.concatenate(list(found.values())))
    print(f"{FILE.name}: {len(COMPUTED)} cases, {len(found)} arrays, {FILE.stat().st_size:,} bytes")
