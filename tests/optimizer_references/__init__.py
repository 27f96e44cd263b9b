"""The references of optimizers, in float64: torch, optax, and rules written from the papers, independently of the WGSL.

A reference takes the parameters and a list of gradients for each step, and gives the parameters and a list of dicts of
state after them, in NumPy's float64: `reference(params, grads, **options)`.
"""

from importlib import import_module

__all__ = ["result_of"]


def result_of(case, params, grads):
    """The parameters and state of a case after these gradients."""
    module, _, function = case.source.rpartition(".")
    if case.source == "torch":
        module, function = "torch_twins", "run"
        options = {"name": case.optimizer, **case.options, **case.more}
    else:
        options = {**case.options, **case.more}
    return getattr(import_module(f"optimizer_references.{module}"), function)(params, grads, **options)
