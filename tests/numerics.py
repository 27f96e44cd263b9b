"""The computations of the tables of cases. Runs natively, and inside Pyodide in a browser, so without NumPy.

Each function takes arrays (of NumPy, or memoryviews) and a device, and returns what `read` gives: the comparison is
the caller's. `tests/conftest.py` calls them on every device.
"""

import importlib
from array import array
from contextlib import contextmanager
from dataclasses import replace

import operation_cases
import optimizer_cases
import schedule_cases

import optirs_web as ow
from optirs_web import launch
from optirs_web.gradchecks import read_together
from optirs_web.lower.windows import WindowAxis
from optirs_web.ops.row_kernels import SUM
from optirs_web.ops.window_kernels import launch_windows, named_window_kernels
from optirs_web.optim.lr_scheduler.scheduler_set import get_option
from optirs_web.runtime import products
from optirs_web.runtime.buffer import View
from optirs_web.runtime.dtypes import UINT32
from optirs_web.runtime.form_kernels import form_kernel
from optirs_web.wgsl import add_module, parse

OPERATIONS = {case.name: case for case in operation_cases.CASES}
DRIVEN = {case.name: case for case in optimizer_cases.DRIVEN_CASES}
OPTIMIZERS = {case.name: case for case in [*optimizer_cases.CASES, *optimizer_cases.SPARSE_CASES]}
FIRST_ROWS = {case.optimizer: case for case in reversed([*OPTIMIZERS.values(), *DRIVEN.values()])}
"""Of each optimizer the first row of the table."""


def operation(name, calls, device):
    """Return for each call of an operation: values, gradients, and derivatives of <gradients, tangents>.

    A call is the number of a variant, its sources, the gradient that goes in, and a tangent for each float source. The
    last derivatives are for each tangent those by the sources and by the gradient that went in; [] for none.
    """
    return _read([_derivatives(OPERATIONS[name], *call, device) for call in calls])


def operation_by_tiles(name, calls, device):
    """As `operation`, with the kernels that software adapters without quads are given."""
    with by_tiles(device):
        return operation(name, calls, device)


def operation_as_on_gpus(name, calls, device):
    """As `operation`, with the kernels that GPUs are given."""
    with by_tiles(device, "discrete"):
        return operation(name, calls, device)


def operation_by_vectors(name, calls, device):
    """Run `operation` with B read by vectors in products by quads of any size."""
    own, products.LEAST_BY_VECTORS = products.LEAST_BY_VECTORS, 0
    try:
        return operation(name, calls, device)
    finally:
        products.LEAST_BY_VECTORS = own


def operation_by_subgroups(name, calls, device):
    """Run `operation` with rows reduced by subgroups, each by a workgroup of its own."""
    with by_subgroups(device):
        return operation(name, calls, device)


@contextmanager
def by_subgroups(device):
    """Have rows of any length reduced as GPUs with subgroups reduce long ones."""
    with by_tiles(device, "discrete"):
        own = launch.at_once, launch.SHORT_ROW
        launch.at_once, launch.SHORT_ROW = lambda *_: 1, 0
        try:
            yield
        finally:
            launch.at_once, launch.SHORT_ROW = own


@contextmanager
def by_tiles(device, tiles="software"):
    """Products and attention without quads, also on software adapters."""
    device = ow.device(device)
    own = device.capabilities
    device.capabilities = replace(own, quads=False, tiles=tiles, subgroups=tiles != "software")
    try:
        yield
    finally:
        device.capabilities = own


def _derivatives(case, number, sources, weights, tangents, device):
    variant = case.variants[number]
    leaves = [_tensor(*pair, device) for pair in zip(sources, variant.sources, strict=True)]
    real = [leaf for leaf in leaves if leaf.dtype == "float32"]
    for tensor in real:
        tensor.requires_grad = not case.why_not
    value = case.ours(*variant.walked(leaves))
    if case.why_not or not real:
        return [value, [], []]
    cotangent = _tensor(weights, value.shape, device)
    cotangent.requires_grad = True
    along = [_tensor(tangent, leaf.shape, device) for tangent, leaf in zip(tangents, real, strict=True)]
    slopes = ow.gradients(value, real, cotangent, create_graph=True)
    seconds = [
        ow.gradients(slope, [*real, cotangent], tangent, retain_graph=True)
        for slope, tangent in zip(slopes, along, strict=True)
        if slope is not None and slope.requires_grad
    ]
    return [value, slopes, seconds]


def _tensor(values, shape, device):
    """Return a tensor of this shape; an array without elements has lost its shape on the way to the browser."""
    made = ow.tensor(values, device=device)
    return made if made.size else made.reshape(shape)


def _read(nested):
    """The values of tensors in nested lists, as pairs of shape and array, read at once."""
    tensors = []

    def gather(nested):
        if isinstance(nested, list):
            return [gather(part) for part in nested]
        if nested is not None:
            tensors.append(ow.Tensor(nested.view, nested.shape, UINT32) if nested.dtype == "bool" else nested)
        return nested

    gather(nested)
    values = iter([[list(tensor.shape), read] for tensor, read in zip(tensors, read_together(tensors), strict=True)])

    def fill(nested):
        return [fill(part) for part in nested] if isinstance(nested, list) else [] if nested is None else next(values)

    return fill(nested)


def calculated(names, values, device):
    """Return the results of elementwise functions of the values, by their order in `names`."""
    x = ow.tensor(values, device=device)
    return _read([getattr(ow.ops, name)(x) for name in names])


def reduced(names, values, order, axis, keepdims, device):
    """Return the results of reductions of the values, whose axes are permuted first, with their shapes."""
    x = ow.tensor(values, device=device).permute(*order)
    result = [getattr(ow.ops, name)(x, None if axis is None else tuple(axis), keepdims) for name in names]
    return _read(result)


def broadcast(a, b, weights, device):
    """a * b + b - a, and the gradients of its weighted sum."""
    a, b = (ow.tensor(values, device=device, requires_grad=True) for values in (a, b))
    result = a * b + b - a
    return _read([result, *ow.gradients(result, [a, b], weights)])


def wandered(steps, values, weights, device):
    """Return the values after steps from one strided view to the next, and the gradient of their weighted sum."""
    x = y = ow.tensor(values, device=device, requires_grad=True)
    for name, argument in steps:
        y = STEPS[name](y, argument)
    return _read([y, *ow.gradients(y, [x], _tensor(weights, y.shape, device))])


STEPS = {
    "permute": lambda x, order: x.permute(*order),
    "reshape": lambda x, shape: x.reshape(shape),
    "broadcast": lambda x, shape: ow.ops.broadcast_to(x, tuple(shape)),
    "slice": lambda x, parts: ow.ops.getitem(x, tuple(slice(*part) for part in parts)),
    "flip": lambda x, axis: ow.ops.flip(x, axis),
}


def multiplied(a, b, swapped, device):
    """Return a product of matrices, some of them transposed views, by the device's kernels and by tiles."""
    a, b = (
        ow.tensor(values, device=device).transpose(-1, -2) if is_swapped else ow.tensor(values, device=device)
        for values, is_swapped in zip((a, b), swapped, strict=True)
    )
    product = a @ b
    with by_tiles(device):
        return _read([product, a @ b])


def distribution(values, axis, device):
    """The softmax along an axis."""
    return ow.ops.softmax(ow.tensor(values, device=device), axis).read()


def gradient_checks(name, sources, device):
    """Return the errors of `gradcheck` and `gradgradcheck` for an operation at its first shapes; "" for none."""
    case = OPERATIONS[name]
    variant = case.variants[0]
    inputs = [ow.tensor(source, device=device) for source in sources]
    for input_ in inputs:
        input_.requires_grad = input_.dtype == "float32"
    wrong = []
    for check in (ow.gradcheck, ow.gradgradcheck):
        try:
            check(lambda *them: case.ours(*variant.walked(them)), inputs, fast_mode=True)
        except ow.errors.GradcheckError as error:
            wrong.append(f"{check.__name__}: {error}")
    return "; ".join(wrong)


def steps(name, params, grads, device):
    """Parameters and state after a step with each of the lists of gradients."""
    ours, optimizer = _optimizer(name, params, device)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    return [mine.read() for mine in ours], _by_text(optimizer.state_dict()["state"])


def sparse_steps(name, params, grads, device):
    """Parameters and state after a step with each of the lists of pairs of rows and values, or None."""
    ours, optimizer = _optimizer(name, params, device)
    for step_grads in grads:
        pairs = zip(step_grads, ours, strict=True)
        optimizer.step(grads=[pair and ow.SparseRows(*pair, param.shape, device=device) for pair, param in pairs])
    return [mine.read() for mine in ours], _by_text(optimizer.state_dict()["state"])


def sparse_run(optimizer, options, params, grads, device):
    """Parameters after a step of an optimizer with each of the lists of pairs of rows and values."""
    ours = [ow.Parameter(param, device=device) for param in params]
    stepped = getattr(ow.optim, optimizer)(ours, **options)
    for step_grads in grads:
        pairs = zip(step_grads, ours, strict=True)
        stepped.step(grads=[ow.SparseRows(*pair, param.shape, device=device) for pair, param in pairs])
    return [mine.read() for mine in ours]


def sparse_sums(rows, values, shape, device):
    """The values of rows added up, and what they change of a table and of its neighbours in the arena."""
    table = ow.Parameter(ow.ones(shape, device=device))
    others = [ow.Parameter([1.0], device=device) for _ in range(2)]
    optimizer = ow.optim.SGD([others[0], table, others[1]], lr=1.0)
    grad = ow.SparseRows(ow.tensor(rows, device=device), ow.tensor(values, device=device), shape)
    optimizer.step(grads=[None, grad, None])
    return grad.to_dense().read(), grad.to_dense().read(), table.read(), [other.item() for other in others]


def long_steps(name, param, grad, factors, stride, tail, device):
    """One parameter after steps with multiples of one gradient: every `stride`-th element, and the last `tail`."""
    (ours,), optimizer = _optimizer(name, [param], device)
    grad = ow.tensor(grad, device=device)
    for factor in factors:
        optimizer.step(grads=[grad * factor])
    state = optimizer.state_dict()["state"].get(0, {})
    slots = {
        key: _sample(value, stride, tail) if getattr(value, "shape", ()) else float(value)
        for key, value in state.items()
    }
    return _sample(ours.read(), stride, tail), slots


def transformed(specs, optimizer, options, params, grads, device):
    """Parameters after each step of an optimizer whose gradients go through transforms, given by name and arguments."""
    ours = [ow.Parameter(param, device=device) for param in params]
    transforms_ = [getattr(ow.optim.transforms, name)(**arguments) for name, arguments in specs]
    stepped = getattr(ow.optim, optimizer)(ours, transforms=transforms_, **options)
    result = []
    for step_grads in grads:
        stepped.step(grads=step_grads)
        result.append([mine.read() for mine in ours])
    return result


def projected(name, arguments, values, device):
    """Tensors after a projection."""
    ours = [ow.Parameter(value, device=device) for value in values]
    getattr(ow.optim.projections, name)(**arguments).apply(ours)
    return [mine.read() for mine in ours]


def clipped_grads(grads, max_norm, norm_type, limit, device):
    """The norm, and the gradients once they are clipped by it and by value."""
    ours = [ow.Parameter(grad, device=device) for grad in grads]
    for mine, grad in zip(ours, grads, strict=True):
        mine.grad = grad
    norm = ow.optim.clip_grad_norm_(ours, max_norm, float(norm_type)).item()
    by_norm = [mine.grad.read() for mine in ours]
    ow.optim.clip_grad_value_(ours, limit)
    return norm, by_norm, [mine.grad.read() for mine in ours]


def averages(name, arguments, values, device):
    """The averages of each list of values, and the parameters while they are swapped and afterwards."""
    ours = [ow.Parameter(value, device=device) for value in values[0]]
    average = getattr(ow.optim.averaging, name)(ours, **arguments)
    for row_values in values:
        for param, value in zip(ours, row_values, strict=True):
            param.assign(value)
        average.update_parameters()
    result = [average.read() for average in average.averages()]
    with average.swapped():
        swapped = [mine.read() for mine in ours]
    return result, swapped, [mine.read() for mine in ours]


def scaled_steps(transforms, options, params, grads, scaler, device):
    """Parameters and scales after steps whose gradients were multiplied by the scale, and the steps that were taken."""
    ours = [ow.Parameter(param, device=device) for param in params]
    transforms_ = [getattr(ow.optim.transforms, name)(**arguments) for name, arguments in transforms]
    optimizer, scaler = ow.optim.AdamW(ours, transforms=transforms_, **options), ow.optim.GradScaler(device, **scaler)
    scales = []
    for step_grads in grads:
        for param, grad in zip(ours, step_grads, strict=True):
            param.grad = scaler.scale(ow.tensor(grad, device=device))
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return [mine.read() for mine in ours], scales, float(optimizer.state_dict()["state"][0]["step"])


def driven_steps(name, starts, curvatures, device):
    """Parameters and state after the steps of an optimizer that asks for gradients itself."""
    ours = [ow.Parameter(start, device=device) for start in starts]
    problem = optimizer_cases.Problem(ours, [ow.tensor(curvature, device=device) for curvature in curvatures])
    case = DRIVEN[name]
    state = case.run(problem, case.steps, **case.options)
    return [mine.read() for mine in ours], [tensor.read() for tensor in state]


def _optimizer(name, params, device):
    case = OPTIMIZERS[name]
    ours = [ow.Parameter(param, device=device) for param in params]
    return ours, getattr(ow.optim, case.optimizer)(ours, **case.options)


def _by_text(state):
    """JSON has no numbers as keys."""
    return {
        str(number): {key: value if getattr(value, "shape", ()) else float(value) for key, value in entry.items()}
        for number, entry in state.items()
    }


def _sample(values, stride, tail):
    view = memoryview(values)
    return array("f", bytes(view[::stride]) + bytes(view[-tail:]))


def long_sum(values, device):
    """The sum of all elements."""
    return ow.tensor(values, device=device).sum().item()


def row_sums(values, device):
    """The sum of each row, by a workgroup of its own."""
    x = ow.tensor(values, device=device)
    rows, columns = x.shape
    sums = ow.zeros((rows,), device=device)
    x.device.dispatch(form_kernel(SUM), [x.view, sums.view], rows, (rows, columns, 1, 1))
    return sums.read()


def over_windows(name, calls, device):
    """Return for each call what a kernel over windows writes, into arrays of 7.

    A call is the operands, the shapes of the results, and the last arguments of `launch_windows`, with lists for axes.
    """
    kernel, results = named_window_kernels()[name], []
    for operands, shapes, (axes, *others) in calls:
        written = [
            ow.full(tuple(shape), 7, device=device, dtype={"f32": "float32", "i32": "int32"}[write.type])
            for shape, write in zip(shapes, kernel.writes, strict=True)
        ]
        down, across = (WindowAxis(*axis) for axis in axes)
        given = [ow.tensor(operand, device=device) for operand in operands]
        launch_windows(kernel, written, given, (down, across), *others)
        results.append([tensor.read() for tensor in written])
    return results


def arithmetic(a, b, device):
    """The sum, difference, product and quotient."""
    a, b = ow.tensor(a, device=device), ow.tensor(b, device=device)
    return [tensor.read() for tensor in (a + b, a - b, a * b, a / b)]


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
    """Return the options that a scheduler sets, for 1 + `steps` counts: on the host, and on the device.

    One list for each option and group, of the first option the groups first.
    """
    options = {"momentum": 0.9} if kind == "SGD" else {}
    groups = [{"params": [ow.Parameter([1.0], device=device)], "lr": lr} for lr in (0.5, 1.0)]
    optimizer = getattr(ow.optim, kind)(groups, **options)
    scheduler = schedule_cases.scheduler(name, ow.optim.lr_scheduler, optimizer, ow.optim.schedules)
    followed = [(param, group) for param in scheduler.params for group in range(2)]
    layout = optimizer._built
    names = layout.rule.hyper
    kept = layout.device.allocate_zeroed(4 * len(followed) * (1 + steps))
    host = [[] for _ in followed]
    for count in range(1 + steps):
        if count:
            scheduler.step()
        optimizer._refresh()
        if layout is not optimizer._built:
            raise AssertionError("a schedule needs no other kernels on its way")
        for number, (param, group) in enumerate(followed):
            host[number].append(get_option(optimizer.param_groups[group], param))
            word = group * len(names) + names.index(param if param in names else f"one_minus_{param}")
            source = layout.hyper.word_view(word)
            layout.device.copy(source, View(kept, 4 * (number * (1 + steps) + count), 4))
    read = list(layout.device.read(View.whole(kept)).cast("f"))
    lists = [read[first : first + 1 + steps] for first in range(0, len(read), 1 + steps)]
    for number, (param, _) in enumerate(followed):
        if param not in names:
            lists[number] = [1 - value for value in lists[number]]
    return {"host": host, "device": lists, "on_device": int(scheduler.is_on_device)}


def module_training(rows, device):
    """The first and the last loss of a module that learns the sums of rows."""
    ow.manual_seed(1)
    nn = ow.nn
    net = nn.Sequential(nn.Linear(3, 8, device=device), nn.ReLU(), nn.Linear(8, 1, device=device))
    optimizer, criterion = ow.optim.SGD(net.parameters(), lr=0.1), nn.MSELoss()

    def train_step(x, y):
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device)
    sums = ow.tensor(rows, device=device).sum(axis=1, keepdims=True).read()
    losses = [step(x, y).item() for _ in range(5) for x, y in nn.DataLoader((rows, sums), 8, True, device=device)]
    return losses[0], losses[-1]


def shuffled(count, batch_size, seed, device):
    """The batches of two epochs over the first numbers."""
    numbers = memoryview(array("i", range(count)))
    loader = ow.nn.DataLoader(numbers, batch_size, shuffle=True, seed=seed, device=device)
    return [[batch.tolist() for batch in loader] for _ in range(2)]


def example_losses(module, model, sizes, data, steps, batch, device):
    """The losses of the first steps of a model of `examples/`, from the same weights everywhere."""
    ow.manual_seed(0)
    example = importlib.import_module(module)
    losses = example.train(getattr(example, model)(**sizes, device=device), *data, steps, batch)
    return [tensor.tolist() for tensor in read_together(list(losses))]


def in_bfloat16(values, device):
    """A product with ones under autocast, the values in 16 bits, and the gradient of the ones."""
    ones = ow.Parameter([[1.0], [1.0], [1.0]], device=device)
    with ow.autocast("bfloat16"):
        product = ow.tensor(values, device=device) @ ones
    product.float().sum().backward()
    return [tensor.read() for tensor in (product, ow.tensor(values, device=device, dtype="bfloat16"), ones.grad.T)]


def in_float16(values, device):
    """A product of values of float16 with themselves, whether its kernel is of f16, and whether the device has that."""
    names = []
    device.observers.append(lambda kernel, _: names.append(kernel.name))
    x = ow.tensor(values, device=device, dtype="float16")
    product = x @ x
    device.observers.pop()
    return [product.read(), float("matmul_f16" in names), float("shader-f16" in device.capabilities.features)]


def large_step(x, w, device):
    """Results of a large step, and the number of dispatches of a replay."""
    wide = ow.ones((2048, 1024), device=device)
    step = ow.compile(lambda x, w: [x @ w, (x + 1.0).exp(), wide.sum(axis=0), wide.sum(axis=1)], device=device)
    return [read_together(step(x, w)), step.program.dispatches]


@contextmanager
def _shown(device, nbytes):
    """Kernels are shown so many bytes of a buffer."""
    whole = device.capabilities
    device.capabilities = replace(whole, max_binding_bytes=nbytes)
    try:
        yield
    finally:
        device.capabilities = whole


def product_in_parts(a, b, nbytes, device):
    """A product, its gradients for the gradient 2 C, and the launches of the product."""
    x, y = (ow.tensor(values, device=device, requires_grad=True) for values in (a, b))
    with _shown(x.device, nbytes):
        before = x.device.stats.copy()
        product = x @ y
        launches = (x.device.stats - before).dispatches
        (product * product).sum().backward()
        return [launches, *(tensor.read() for tensor in (product, x.grad, y.grad))]


def embedding_in_parts(table, index, nbytes, device):
    """Rows of a table, and its gradient for the gradient 2 y."""
    weight = ow.tensor(table, device=device, requires_grad=True)
    with _shown(weight.device, nbytes):
        rows = ow.ops.embedding(weight, ow.tensor(index, device=device))
        (rows * rows).sum().backward()
        return [rows.read(), weight.grad.read()]


def _contributed(text, package, name):
    """Return what a block of Python in CONTRIBUTING.md defines, as a module of that package."""
    namespace = {"__name__": f"{package}.{name}", "__package__": package}
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), namespace)
    return namespace[name]


def contributed_operation(wgsl, python, values, weight, grad, device):
    """A row operation of CONTRIBUTING.md: its result, and the gradients of both operands."""
    add_module(("rows", "rms_norm"), parse(wgsl, "rms_norm.wgsl"))
    rms_norm = _contributed(python, "optirs_web.ops", "rms_norm")
    x, w = (ow.tensor(array, device=device, requires_grad=True) for array in (values, weight))
    y = rms_norm(x, w, eps=0.1)
    y.backward(ow.tensor(grad, device=device))
    return y.read(), x.grad.read(), w.grad.read()


def contributed_optimizer(wgsl, python, params, grads, device):
    """An optimizer of CONTRIBUTING.md: the parameters after a step with each of the gradients."""
    add_module(("optimizers", "normalized_momentum"), parse(wgsl, "normalized_momentum.wgsl"))
    optimizer_type = _contributed(python, "optirs_web.optim", "NormalizedMomentum")
    tensors = [ow.Parameter(param, device=device) for param in params]
    optimizer = optimizer_type(tensors, lr=0.1, momentum=0.5)
    for grad in grads:
        optimizer.step(grads=list(grad))
    return [tensor.read() for tensor in tensors]
