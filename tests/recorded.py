"""The results of torch and optax for the cases that are compared with them, recorded in `tests/recorded.npz`.

`make test` compares with the record and so needs neither library; `make test-all` compares every element with the
libraries, and the record too. `make references` writes it. Of each array the record keeps SAMPLES elements.
"""

from functools import cache
from pathlib import Path

import numpy as np
import scaled_problem
import schedule_cases
from optimizer_cases import CASES, DRIVEN_CASES, SPARSE_CASES
from optimizer_problems import make_problem
from optimizer_references import driven, result_of
from requirements import EXTRAS, source_of
from schedule_problems import torchs, values_of
from sparse_problems import make_problem as make_sparse_problem
from wrapper_problems import in_float64

__all__ = [
    "DENSE",
    "DRIVEN",
    "SCALED",
    "SCHEDULES",
    "SCHEDULE_STEPS",
    "SPARSE",
    "compute",
    "optaxs_schedule",
    "recorded",
    "samples",
    "torchs_schedule",
]

FILE = Path(__file__).with_suffix(".npz")
SAMPLES = 48
SCHEDULE_STEPS = 1000


def _of_libraries(cases):
    return {case.name: case for case in cases if source_of(case) in EXTRAS}


DENSE, SPARSE, DRIVEN = _of_libraries(CASES), _of_libraries(SPARSE_CASES), _of_libraries(DRIVEN_CASES)
_SCALED = "GradScaler "
SCALED = {f"{_SCALED}{name}": transforms for name, transforms in scaled_problem.TRANSFORMS.items()}
SCHEDULES = {case.name: case for case in (*schedule_cases.TORCH, *schedule_cases.EDGES)}


def samples(array):
    """SAMPLES elements of an array at equal distances, the first and the last among them, as float64."""
    flat = np.asarray(array, np.float64).ravel()
    return flat[np.linspace(0, flat.size - 1, min(SAMPLES, flat.size)).round().astype(int)]


def recorded(name):
    """Return the record of a case: samples by the names of arrays."""
    prefix = f"{name}: "
    result = {key.removeprefix(prefix): array for key, array in _file().items() if key.startswith(prefix)}
    assert result, f"{name} is not recorded: run make references"
    return result


@cache
def _file():
    with np.load(FILE) as file:  # one array of all: an entry in a zip file takes more than its samples do
        arrays = np.split(file["values"], np.cumsum(file["sizes"])[:-1])
        return dict(zip(file["names"].tolist(), arrays, strict=True))


def compute():
    """The record, from the libraries."""
    record = {}
    for name, case in DENSE.items():
        record |= _arrays(name, *result_of(case, *make_problem(case.shapes, case.steps)))
    for name, case in SPARSE.items():
        from optimizer_references import sparse

        params, grads = make_sparse_problem(case.shapes)
        record |= _arrays(name, *sparse.run(params, grads, name=case.optimizer, **case.options))
    for name, case in DRIVEN.items():
        params, state = getattr(driven, case.run.__name__)(*in_float64(), case.steps, **case.options)
        record |= _arrays(name, params, [{"state": array} for array in state])
    for name in SCALED:
        params, scales = scaled_problem.torchs(name.removeprefix(_SCALED))
        record |= _arrays(name, [*params, scales], [])
    for name, case in SCHEDULES.items():
        record |= {f"{name}: {number}": samples(row) for number, row in enumerate(torchs_schedule(case))}
    for name in schedule_cases.OPTAX_NAMES:
        record[f"{name}: 0"] = samples(optaxs_schedule(name))
    return {key: array.astype(np.float32) for key, array in record.items()}


def _arrays(name, params, state):
    result = {f"{name}: {index}": samples(param) for index, param in enumerate(params)}
    for index, slots in enumerate(state):
        result |= {f"{name}: {index}.{slot}": samples(value) for slot, value in slots.items()}
    return result


def torchs_schedule(case):
    """A row for each option and group: its values at 1 + SCHEDULE_STEPS counts, by torch."""
    import torch

    optimizer = torchs(torch, case.optimizer)
    scheduler = case.make(torch.optim.lr_scheduler, optimizer)
    names = ["lr", "beta1" if case.optimizer == "AdamW" else "momentum"]
    values = [values_of(optimizer, *names)]
    for _ in range(SCHEDULE_STEPS):
        scheduler.step()
        values.append(values_of(optimizer, *names))
    return np.transpose(np.asarray(values, np.float64))


def optaxs_schedule(name):
    """The values at 1 + SCHEDULE_STEPS counts, by optax in float64."""
    import jax
    import optax

    with jax.enable_x64(True):
        values = schedule_cases.schedule(name, optax.schedules)
        return np.array([float(values(np.float64(count))) for count in range(1 + SCHEDULE_STEPS)])


if __name__ == "__main__":
    record = compute()
    sizes = [array.size for array in record.values()]
    np.savez_compressed(FILE, names=list(record), sizes=sizes, values=np.concatenate(list(record.values())))
