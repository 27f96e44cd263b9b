"""Tasks of a page that overlap: modes, compiled steps and reads that wait. Each computes what it computes alone."""

import json

import pytest
from training_page import with_training

TASKS = """
import asyncio
from optirs_web.autograd import grad_enabled

async def train(seed, waits):
    ow.manual_seed(0)
    rows = [[((seed + 3 * row + 5 * column) % 7 - 3) / 4 for column in range(4)] for row in range(4)]
    w = ow.Parameter(rows, device="webgpu")
    opt = ow.optim.SGD([w], lr=0.1)
    step = ow.compile(lambda x: (x @ w).square().mean())
    losses = []
    for number in range(4):
        x = ow.tensor([[float(number), 1.0, -1.0, 0.5]], device="webgpu")
        opt.zero_grad()
        loss = (x @ w).square().mean()
        loss.backward()
        opt.step()
        with ow.no_grad():
            checked = step(x)
            value = checked.item() if waits == "by itself" else await checked.item_async()
            await asyncio.sleep(0)
            losses.append([value, grad_enabled()])
        losses.append([loss.item() if waits == "by itself" else await loss.item_async(), grad_enabled()])
    return losses, await w.tolist_async()

async def overlapping(waits):
    alone = [await train(seed, waits) for seed in range(3)]
    return alone == await asyncio.gather(*(train(seed, waits) for seed in range(3))), grad_enabled()
"""


@pytest.mark.parametrize("waits", ["by itself", "awaited"])
def test_tasks_that_overlap_train_as_they_do_alone(browser_python, waits):
    program = f'{TASKS}\njson.dumps(await overlapping("{waits}"))'
    assert json.loads(browser_python.run(with_training(program))) == [True, True]


def test_a_compiled_step_of_two_tasks_takes_the_arguments_of_each_call(browser_python):
    program = """
        import asyncio
        double = ow.compile(lambda x, y: x * 2.0 + y, "webgpu")

        async def timed_call(number):
            found = []
            for _ in range(4):
                x = ow.tensor([float(number)] * 3, device="webgpu")
                found.append(double(x, [0.0, 1.0, 2.0]).tolist())
                await asyncio.sleep(0)
            return found

        json.dumps(await asyncio.gather(*map(timed_call, range(3))))
        """
    actual = json.loads(browser_python.run(with_training(program)))
    assert actual == [[[2.0 * number, 2.0 * number + 1, 2.0 * number + 2]] * 4 for number in range(3)]


def test_a_task_that_waits_in_a_step_that_it_records_is_said_to_another(browser_python):
    program = """
        import asyncio
        from pyodide.ffi import run_sync
        said = []
        waiting = asyncio.Event()

        def waits(x):
            waiting.set()
            run_sync(asyncio.sleep(0.2))
            return x * 2.0

        async def first():
            said.append(ow.compile(waits, "webgpu")([1.0]).tolist())

        async def second():
            await waiting.wait()
            said.append((ow.ones((1,), device="webgpu") + 1.0).tolist())
            try:
                ow.compile(lambda x: x * 3.0, "webgpu")([1.0])
            except ow.errors.UnsupportedError as error:
                said.append(str(error))

        await asyncio.gather(first(), second())
        json.dumps([said, ow.compile(lambda x: x * 3.0, "webgpu")([1.0]).tolist()])
        """
    said, later = json.loads(browser_python.run(with_training(program)))
    assert said == [[2.0], "another task is recording a compiled step on 'webgpu'", [2.0]]
    assert later == [3.0]
