"""What is computed for the tables of cases. Runs natively, and inside Pyodide in a browser, so without NumPy.

Each function takes arrays (of NumPy, or memoryviews) and a device, and returns what `read` gives: the comparison is
the caller's. `tests/conftest.py` calls them on every device.
"""

from array import array

import operation_cases
import optimizer_cases

import optirs_web as ow

OPERATIONS = {case.name: case for case in operation_cases.CASES}
OPTIMIZERS = {case.name: case for case in optimizer_cases.CASES}


def value(name, inputs, device):
    """The value of an operation."""
    return OPERATIONS[name].ours(*(ow.tensor(one, device=device) for one in inputs)).read()


def gradients(name, inputs, weights, device):
    """The gradients of the weighted sum of an operation's values."""
    tensors = [ow.tensor(one, device=device, requires_grad=True) for one in inputs]
    OPERATIONS[name].ours(*tensors).backward(weights)
    return [one.grad.read() for one in tensors]


def steps(name, params, grads, device):
    """Parameters and state after a step with each of the lists of gradients."""
    ours, optimizer = _optimizer(name, params, device)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    return [one.read() for one in ours], _by_text(optimizer.state_dict()["state"])


def long_steps(name, param, grad, factors, stride, tail, device):
    """One parameter after steps with multiples of one gradient: every `stride`-th element, and the last `tail`."""
    (ours,), optimizer = _optimizer(name, [param], device)
    grad = ow.tensor(grad, device=device)
    for factor in factors:
        optimizer.step(grads=[grad * factor])
    state = optimizer.state_dict()["state"].get(0, {})
    slots = {key: _sample(one, stride, tail) if getattr(one, "shape", ()) else float(one) for key, one in state.items()}
    return _sample(ours.read(), stride, tail), slots


def _optimizer(name, params, device):
    case = OPTIMIZERS[name]
    ours = [ow.Parameter(one, device=device) for one in params]
    return ours, getattr(ow.optim, case.optimizer)(ours, **case.options)


def _by_text(state):
    """JSON has no numbers as keys."""
    return {
        str(number): {key: one if getattr(one, "shape", ()) else float(one) for key, one in entry.items()}
        for number, entry in state.items()
    }


def _sample(values, stride, tail):
    view = memoryview(values)
    return array("f", bytes(view[::stride]) + bytes(view[-tail:]))


def long_sum(values, device):
    """The sum of all elements."""
    return ow.tensor(values, device=device).sum().item()


def row_sums(values, device):
    """The sum of each row."""
    return ow.tensor(values, device=device).sum(axis=1).read()


def arithmetic(a, b, device):
    """The sum, difference, product and quotient."""
    a, b = ow.tensor(a, device=device), ow.tensor(b, device=device)
    return [one.read() for one in (a + b, a - b, a * b, a / b)]


def relu_and_gradient(values, device):
    """relu of the values, and the derivative there."""
    x = ow.tensor(values, device=device, requires_grad=True)
    y = x.relu()
    y.backward([1.0] * len(values))
    return y.read(), x.grad.read()


def random(seed, count, device):
    """Uniform and normal random numbers."""
    return ow.rand((count,), device=device, seed=seed).read(), ow.randn((count,), device=device, seed=seed).read()
