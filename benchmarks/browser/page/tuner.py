"""The cases of the tuner's benchmark, natively and in a page. Each case is searched, and then timed anew."""

import json

import optirs_web as ow

PRODUCTS = [(64, 64, 256), (64, 256, 10), (256, 256, 256), (512, 256, 512), (32, 512, 1024)]
SUMS = [((1 << 20,), None), ((256, 256), 0), ((4096, 64), 1), ((64, 4096), 1)]
SIZES = [1 << 12, 1 << 16, 1 << 20]


def cases(device):
    """Yield steps of one kernel each."""
    for rows, inner, columns in PRODUCTS:
        a, b = ow.ones((rows, inner), device=device), ow.ones((inner, columns), device=device)
        yield lambda a=a, b=b: a @ b
        left, right = ow.ones((inner, rows), device=device), ow.ones((columns, inner), device=device)
        yield lambda a=left, b=b: a.T @ b
        yield lambda a=a, b=right: a @ b.T
    for shape, axis in SUMS:
        x = ow.ones(shape, device=device)
        yield lambda x=x, axis=axis: x.sum(axis=axis)
    for size in SIZES:
        x = ow.ones((size,), device=device)
        yield lambda x=x: x.exp()
        yield lambda x=x: x + x
        square = ow.ones((64, size // 64), device=device)
        yield lambda x=square: x.T.exp()
        w = ow.Parameter(ow.ones((size,), device=device))
        optimizer = ow.optim.AdamW([w])
        w.grad = ow.ones((size,), device=device)
        yield optimizer.step


async def measure(name):
    """Return for each work its default, its choice, and the seconds of both, in the search and when timed again."""
    device = await ow.device_async(name)
    rows = []
    for step in cases(device):
        searched, timed = [
            {work[:3]: work for work in (await ow.tune_async(step, device=device, again=True)).works if work.seconds}
            for _ in range(2)
        ]
        for key in searched.keys() & timed.keys():
            first_work, later = searched[key], timed[key]
            seconds = [
                work.seconds[choice]
                for work in (first_work, later)
                for choice in (first_work.default, first_work.chosen)
            ]
            rows.append([first_work.kernel, first_work.shape_class, first_work.default, first_work.chosen, *seconds])
    return json.dumps([device.info.description, rows])
