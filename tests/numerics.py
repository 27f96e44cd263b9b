"""What is computed for the tables of cases. Runs natively, and inside Pyodide in a browser, so without NumPy.

Each function takes arrays (of NumPy, or memoryviews) and a device, and returns what `read` gives: the comparison is
the caller's. `tests/conftest.py` calls them on every device.
"""

from array import array

import operation_cases
import optimizer_cases
import schedule_cases

import optirs_web as ow
from optirs_web.optim.lr_scheduler.attached import get_option
from optirs_web.runtime.buffer import View

OPERATIONS = {case.name: case for case in operation_cases.CASES}
DRIVEN = {case.name: case for case in optimizer_cases.DRIVEN_CASES}
OPTIMIZERS = {case.name: case for case in [*optimizer_cases.CASES, *optimizer_cases.SPARSE_CASES]}


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


def sparse_steps(name, params, grads, device):
    """Parameters and state after a step with each of the lists of pairs of rows and values, or None."""
    ours, optimizer = _optimizer(name, params, device)
    for step_grads in grads:
        pairs = zip(step_grads, ours, strict=True)
        optimizer.step(grads=[pair and ow.SparseRows(*pair, one.shape, device=device) for pair, one in pairs])
    return [one.read() for one in ours], _by_text(optimizer.state_dict()["state"])


def sparse_run(optimizer, options, params, grads, device):
    """Parameters after a step of an optimizer with each of the lists of pairs of rows and values."""
    ours = [ow.Parameter(one, device=device) for one in params]
    stepped = getattr(ow.optim, optimizer)(ours, **options)
    for step_grads in grads:
        pairs = zip(step_grads, ours, strict=True)
        stepped.step(grads=[ow.SparseRows(*pair, one.shape, device=device) for pair, one in pairs])
    return [one.read() for one in ours]


def sparse_sums(rows, values, shape, device):
    """The values of rows added up, and what they change of a table and of its neighbours in the arena."""
    table = ow.Parameter(ow.ones(shape, device=device))
    others = [ow.Parameter([1.0], device=device) for _ in range(2)]
    optimizer = ow.optim.SGD([others[0], table, others[1]], lr=1.0)
    grad = ow.SparseRows(ow.tensor(rows, device=device), ow.tensor(values, device=device), shape)
    optimizer.step(grads=[None, grad, None])
    return grad.to_dense().read(), grad.to_dense().read(), table.read(), [one.item() for one in others]


def long_steps(name, param, grad, factors, stride, tail, device):
    """One parameter after steps with multiples of one gradient: every `stride`-th element, and the last `tail`."""
    (ours,), optimizer = _optimizer(name, [param], device)
    grad = ow.tensor(grad, device=device)
    for factor in factors:
        optimizer.step(grads=[grad * factor])
    state = optimizer.state_dict()["state"].get(0, {})
    slots = {key: _sample(one, stride, tail) if getattr(one, "shape", ()) else float(one) for key, one in state.items()}
    return _sample(ours.read(), stride, tail), slots


def transformed(specs, optimizer, options, params, grads, device):
    """Parameters after each step of an optimizer whose gradients go through transforms, given by name and arguments."""
    ours = [ow.Parameter(one, device=device) for one in params]
    its = [getattr(ow.optim.transforms, name)(**arguments) for name, arguments in specs]
    stepped = getattr(ow.optim, optimizer)(ours, transforms=its, **options)
    found = []
    for step_grads in grads:
        stepped.step(grads=step_grads)
        found.append([one.read() for one in ours])
    return found


def projected(name, arguments, values, device):
    """Tensors after a projection."""
    ours = [ow.Parameter(one, device=device) for one in values]
    getattr(ow.optim.projections, name)(**arguments).apply(ours)
    return [one.read() for one in ours]


def clipped_grads(grads, max_norm, norm_type, limit, device):
    """The norm, and the gradients once they are clipped by it and by value."""
    ours = [ow.Parameter(one, device=device) for one in grads]
    for one, grad in zip(ours, grads, strict=True):
        one.grad = grad
    norm = ow.optim.clip_grad_norm_(ours, max_norm, float(norm_type)).item()
    by_norm = [one.grad.read() for one in ours]
    ow.optim.clip_grad_value_(ours, limit)
    return norm, by_norm, [one.grad.read() for one in ours]


def averages(name, arguments, values, device):
    """The averages of each list of values, and the parameters while they are swapped and afterwards."""
    ours = [ow.Parameter(one, device=device) for one in values[0]]
    average = getattr(ow.optim.averaging, name)(ours, **arguments)
    for ones in values:
        for param, value in zip(ours, ones, strict=True):
            param.assign(value)
        average.update_parameters()
    found = [one.read() for one in average.averages()]
    with average.swapped():
        swapped = [one.read() for one in ours]
    return found, swapped, [one.read() for one in ours]


def scaled_steps(transforms, options, params, grads, scaler, device):
    """Parameters and scales after steps whose gradients were multiplied by the scale, and the steps that were taken."""
    ours = [ow.Parameter(one, device=device) for one in params]
    its = [getattr(ow.optim.transforms, name)(**arguments) for name, arguments in transforms]
    optimizer, scaler = ow.optim.AdamW(ours, transforms=its, **options), ow.optim.GradScaler(device, **scaler)
    scales = []
    for step_grads in grads:
        for param, grad in zip(ours, step_grads, strict=True):
            param.grad = scaler.scale(ow.tensor(grad, device=device))
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return [one.read() for one in ours], scales, float(optimizer.state_dict()["state"][0]["step"])


def driven_steps(name, starts, curvatures, device):
    """Parameters and state after the steps of an optimizer that asks for gradients itself."""
    ours = [ow.Parameter(one, device=device) for one in starts]
    problem = optimizer_cases.Problem(ours, [ow.tensor(one, device=device) for one in curvatures])
    case = DRIVEN[name]
    state = case.run(problem, case.steps, **case.options)
    return [one.read() for one in ours], [one.read() for one in state]


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


def schedule(name, kind, steps, device):
    """What the options that a scheduler sets are, for 1 + `steps` counts: on the host, and on the device.

    One list for each option and group, of the first option the groups first.
    """
    options = {"momentum": 0.9} if kind == "SGD" else {}
    groups = [{"params": [ow.Parameter([1.0], device=device)], "lr": lr} for lr in (0.5, 1.0)]
    optimizer = getattr(ow.optim, kind)(groups, **options)
    one = schedule_cases.scheduler(name, ow.optim.lr_scheduler, optimizer, ow.optim.schedules)
    followed = [(param, group) for param in one.params for group in range(2)]
    layout = optimizer._built
    names = layout.rule.hyper
    kept = layout.device.allocate_zeroed(4 * len(followed) * (1 + steps))
    host = [[] for _ in followed]
    for count in range(1 + steps):
        if count:
            one.step()
        optimizer._refresh()
        if layout is not optimizer._built:
            raise AssertionError("a schedule needs no other kernels on its way")
        for number, (param, group) in enumerate(followed):
            host[number].append(get_option(optimizer.param_groups[group], param))
            word = group * len(names) + names.index(param if param in names else f"one_minus_{param}")
            source = View(layout.hyper_buffer, 4 * word, 4)
            layout.device.copy(source, View(kept, 4 * (number * (1 + steps) + count), 4))
    read = list(layout.device.read(View.whole(kept)).cast("f"))
    lists = [read[first : first + 1 + steps] for first in range(0, len(read), 1 + steps)]
    for number, (param, _) in enumerate(followed):
        if param not in names:
            lists[number] = [1 - value for value in lists[number]]
    return {"host": host, "device": lists, "on_device": int(one.is_on_device)}
