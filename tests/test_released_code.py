"""The float64 references of optimizers against the code that the papers' authors released, in a process of its own.

These packages are under permissive licences and only compared with: nothing of them is here. All but one are the
authors' own; `pytorch-optimizer` is of others, for what has no package of its authors.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from optimizer_cases import CASES
from optimizer_problems import make_problem, relative_error
from processes import run_with_arrays
from requirements import released


class Release(NamedTuple):
    """Where the authors' class is, and which function of `tests/optimizer_references` is ours.

    Attributes:
        package: on the package index; `RELEASED` in the Makefile has the versions. Its licence behind it.
        module: that has the class.
        name: of the class.
        reference: module and function.
        named: it takes pairs of names and parameters.
        renamed: what it calls an option of ours.
        more: options that it is given besides.
    """

    package: str
    module: str
    name: str
    reference: str
    named: bool = False
    renamed: Mapping[str, str] = MappingProxyType({})
    more: Mapping[str, Any] = MappingProxyType({})


RELEASES = {
    "AdaBound": Release("adabound", "adabound.adabound", "AdaBound", "modern.adabound"),  # Apache-2.0
    "AdamMini": Release("adam-mini", "adam_mini.adam_mini", "Adam_mini", "norms.adam_mini", named=True),  # MIT
    "AdamWScheduleFree": Release(  # Apache-2.0
        "schedulefree", "schedulefree.adamw_schedulefree", "AdamWScheduleFree", "modern.adamw_schedule_free"
    ),
    "Adan": Release(  # Apache-2.0; its ADOPT, MARS and cautious AdamW differ from what their authors released
        "pytorch-optimizer", "pytorch_optimizer.optimizer.adan", "Adan", "modern.adan",
        renamed={"no_prox": "weight_decouple"},
    ),
    "CAME": Release("came-pytorch", "came_pytorch.CAME", "CAME", "factored.came"),  # MIT
    "CautiousLion": Release(
        "pytorch-optimizer", "pytorch_optimizer.optimizer.lion", "Lion", "modern.cautious_lion",
        more={"cautious": True, "weight_decouple": True},
    ),
    "DAdaptAdaGrad": Release("dadaptation", "dadaptation.dadapt_adagrad", "DAdaptAdaGrad", "norms.dadapt_adagrad"),
    "DAdaptAdam": Release("dadaptation", "dadaptation.dadapt_adam", "DAdaptAdam", "norms.dadapt_adam"),
    "DAdaptSGD": Release("dadaptation", "dadaptation.dadapt_sgd", "DAdaptSGD", "norms.dadapt_sgd"),  # MIT
    "Prodigy": Release("prodigyopt", "prodigyopt.prodigy", "Prodigy", "norms.prodigy"),  # MIT
    "SGDScheduleFree": Release(
        "schedulefree", "schedulefree.sgd_schedulefree", "SGDScheduleFree", "modern.sgd_schedule_free"
    ),
}  # fmt: skip
COMPARED = [case for case in CASES if case.optimizer in RELEASES]


PROGRAM = """
import importlib

torch.set_default_dtype(torch.float64)
for name, asked in options.items():
    params = [torch.nn.Parameter(torch.tensor(given[f"{name} param {number}"])) for number in range(asked["count"])]
    first = [(str(number), one) for number, one in enumerate(params)] if asked["named"] else params
    optimizer = getattr(importlib.import_module(asked["module"]), asked["class"])(first, **asked["options"])
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(asked["steps"]):
        for number, one in enumerate(params):
            one.grad = torch.tensor(given[f"{name} grad {step} {number}"])
        optimizer.step()
    results.update({f"{name} {number}": one.detach().numpy() for number, one in enumerate(params)})
"""


def options_of(case):
    """Return the options of both sides: `maximize` is the same rule for negated gradients."""
    return {name: value for name, value in case.options.items() if name != "maximize"}


@pytest.fixture(scope="module")
def theirs(requires, tmp_path_factory):
    """`theirs(case)`: the parameters that the authors' code makes; all cases run in one process."""
    requires("torch")
    arrays, requested = {}, {}
    for case in COMPARED:
        release = RELEASES[case.optimizer]
        if not released(release.package, release.module):
            continue
        params, grads = make_problem(case.shapes, case.steps)
        arrays |= {f"{case.name} param {number}": param.astype(np.float64) for number, param in enumerate(params)}
        for step, step_grads in enumerate(grads):
            for number, grad in enumerate(step_grads):
                arrays[f"{case.name} grad {step} {number}"] = grad.astype(np.float64)
        options = {release.renamed.get(name, name): value for name, value in options_of(case).items()}
        requested[case.name] = {
            "module": release.module, "class": release.name, "named": release.named,
            "options": {**options, **release.more}, "count": len(params), "steps": case.steps,
        }  # fmt: skip
    result = run_with_arrays(PROGRAM, requested, arrays, tmp_path_factory.mktemp("released"))
    return lambda case: [result[f"{case.name} {number}"] for number in range(len(case.shapes))]


@pytest.mark.needs("released")
@pytest.mark.parametrize("case", COMPARED, ids=[case.name for case in COMPARED])
def test_a_reference_computes_what_the_authors_code_does(case, request):
    release = RELEASES[case.optimizer]
    released(release.package, release.module, is_needed=True)
    module, _, function = release.reference.rpartition(".")
    reference = getattr(import_module(f"optimizer_references.{module}"), function)
    want, _ = reference(*make_problem(case.shapes, case.steps), **options_of(case))
    got = request.getfixturevalue("theirs")(case)
    assert max(relative_error(array, other) for array, other in zip(got, want, strict=True)) <= 1e-9
