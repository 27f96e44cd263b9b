"""Modes such as `no_grad` hold in their own thread or asyncio task: what overlaps leaves one another alone."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

import optirs_web as ow
from optirs_web.autograd import enable_grad, grad_enabled, observe_grads, runs_backward, sources_of
from optirs_web.ops.calls import autocast_to
from optirs_web.ops.random_state import drawn_again, draws_so_far
from optirs_web.placing.policy import current
from optirs_web.runtime.device import Device

# What each mode is like inside its block, as a number that another thread can be asked for.


@contextmanager
def recording():
    with ow.device("cpu").record():
        yield


@contextmanager
def walking_back():
    """In the middle of a backward pass."""
    x = ow.tensor([1.0], device="cpu", requires_grad=True)
    entered, leave = threading.Event(), threading.Event()
    y = x * 2.0
    with ThreadPoolExecutor(1) as pool:

        def pause(_):
            entered.set()
            assert leave.wait(60)

        y.register_hook(pause)
        done = pool.submit(y.backward)
        assert entered.wait(60)
        try:
            yield
        finally:
            leave.set()
            done.result()


@contextmanager
def drawing_again():
    with drawn_again(ow.device("cpu"), 1_000_000):
        yield


def tape_is_open():
    x = ow.tensor([1.0], device="cpu")
    with ow.GradientTape() as tape:
        tape.watch(x)
        y = (x * x).sum()
        return tape.gradient(y, [x])[0].requires_grad  # an outer tape differentiates it in turn


MODES = {
    "no_grad": (ow.no_grad, lambda: not grad_enabled()),
    "autocast": (ow.autocast, lambda: autocast_to() is not None),
    "GradientTape": (ow.GradientTape, tape_is_open),
    "placement": (lambda: ow.placement("cpu"), lambda: current() is not None),
    "a recording": (recording, lambda: Device.recorder() is not None),
    "observed gradients": (lambda: observe_grads(SEEN), lambda: bool(observed())),
    "random numbers drawn again": (drawing_again, lambda: draws_so_far(ow.device("cpu")) >= 1_000_000),
}
SEEN = {}


def observed():
    """Read a gradient in the current mode, and return the entry that this adds to SEEN."""
    x = ow.tensor([1.0], device="cpu")
    _ = x.grad
    return SEEN.pop(id(x), None)


every_mode = pytest.mark.parametrize("mode", MODES)


@every_mode
def test_a_block_holds_where_it_is_and_not_in_another_thread(mode):
    block, holds = MODES[mode]
    with ThreadPoolExecutor(1) as other:
        with block():
            assert (holds(), other.submit(holds).result()) == (True, False)
        assert (holds(), other.submit(holds).result()) == (False, False)


@every_mode
def test_a_block_of_another_thread_does_not_hold_here_while_it_is_open(mode):
    block, holds = MODES[mode]
    entered, leave = threading.Event(), threading.Event()

    def inside():
        with block():
            entered.set()
            assert leave.wait(60)

    with ThreadPoolExecutor(1) as other:
        done = other.submit(inside)
        assert entered.wait(60)
        try:
            assert not holds()
        finally:
            leave.set()
        done.result()


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "a recording"])  # which waits for nothing
def test_overlapping_tasks_leave_everything_as_it_was(mode):
    block, holds = MODES[mode]

    async def first(entered, leave):
        with block():
            entered.set()
            await leave.wait()
            return holds()

    async def both():
        steps = [asyncio.Event() for _ in range(4)]
        one = asyncio.create_task(first(steps[0], steps[1]))
        await steps[0].wait()
        between = holds()
        two = asyncio.create_task(first(steps[2], steps[3]))
        await steps[2].wait()
        steps[1].set()
        inside = [await one]
        steps[3].set()
        return between, [*inside, await two], holds()

    assert asyncio.run(both()) == (False, [True, True], False)
    assert not holds()


def test_two_threads_train_side_by_side_with_evaluation():
    def train(_):
        w = ow.Parameter([1.0], device="cpu")
        opt = ow.optim.SGD([w], lr=0.5)
        for _ in range(100):
            loss = ((w - 3.0) * (w - 3.0)).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            with ow.no_grad():
                w * 2.0
        return w.item()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(train, range(4))) == [3.0] * 4


def test_a_task_keeps_the_modes_that_were_on_where_it_was_made():
    async def made_inside():
        with ow.no_grad():
            task = asyncio.create_task(asyncio.sleep(0, result=None))
            inside = asyncio.create_task(ask())
        await task
        return await inside, grad_enabled()

    async def ask():
        await asyncio.sleep(0)
        return grad_enabled()

    assert asyncio.run(made_inside()) == (False, True)


def test_a_task_made_in_a_recording_does_not_record_when_that_is_over():
    made = []

    def step(x):
        made.append(asyncio.get_running_loop().create_task(later()))
        return x * 2.0

    async def later():
        return (ow.ones((2,), device="cpu") + 1.0).tolist()

    async def main():
        result = ow.compile(step, "cpu")([1.0])
        return result.tolist(), await made[0]

    assert asyncio.run(main()) == ([2.0], [2.0, 2.0])


# The order of blocks.


def paused(block):
    """A generator that stops within a block."""
    with block:
        yield


def test_blocks_of_two_generators_end_in_any_order():
    first, second = paused(ow.no_grad()), paused(ow.no_grad())
    next(first)
    next(second)
    first.close()
    assert not grad_enabled()
    second.close()
    assert grad_enabled()


def test_what_is_inside_holds_when_what_is_around_it_ends_first():
    around, inside = paused(ow.no_grad()), paused(enable_grad())
    next(around)
    next(inside)
    around.close()
    assert grad_enabled()
    with ow.no_grad():
        inside.close()
        assert not grad_enabled()
    assert grad_enabled()


def test_a_generator_that_another_thread_closes_ends_its_block_where_it_began():
    suspended = paused(ow.no_grad())
    next(suspended)
    with ThreadPoolExecutor(1) as other:

        def close():
            with enable_grad():
                suspended.close()
                return grad_enabled()

        assert not grad_enabled()
        assert other.submit(close).result()
    assert grad_enabled()


def test_an_asynchronous_generator_that_is_not_run_to_its_end_ends_its_block_where_it_began():
    async def batches():
        with ow.no_grad(), ow.autocast("bfloat16"):
            yield 1
            yield 2

    async def first_of_them():
        async for _ in batches():
            break
        gc.collect()
        await asyncio.sleep(0.01)  # the loop closes it, in a task of its own
        with ow.autocast("float16"):
            inside = autocast_to().name
        return grad_enabled(), inside, autocast_to()

    assert asyncio.run(first_of_them()) == (True, "float16", None)


def test_an_exception_ends_every_block_around_it():
    def interrupted():
        with ExitStack() as stack:
            for enter, _ in MODES.values():
                stack.enter_context(enter())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [holds() for _, holds in MODES.values()] == [False] * len(MODES)


def test_a_block_is_entered_by_two_threads_at_once():
    shared = ow.autocast("bfloat16")
    both_in = threading.Barrier(2)

    def use(_):
        with shared:
            both_in.wait(60)
            inside = autocast_to()
            both_in.wait(60)
        return inside.name, autocast_to()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(use, range(2))) == [("bfloat16", None)] * 2


def test_a_block_that_was_left_is_freed_at_once():
    gc.collect()
    gc.disable()
    try:
        for enter in (ow.no_grad, ow.autocast, ow.GradientTape, lambda: ow.placement("cpu")):
            with enter():
                pass
        assert gc.collect() == 0
    finally:
        gc.enable()


# Decorators.


def test_decorated_functions_coroutines_and_generators_run_inside_and_their_callers_outside():
    @ow.no_grad()
    def function():
        return grad_enabled()

    @ow.no_grad()
    async def coroutine():
        await asyncio.sleep(0)
        return grad_enabled()

    @ow.no_grad()
    def generator():
        received = yield grad_enabled()
        try:
            yield received
        except ValueError:
            yield grad_enabled()
        return grad_enabled()

    assert function() is False
    assert asyncio.run(coroutine()) is False
    values = generator()
    assert (next(values), grad_enabled()) == (False, True)
    assert (values.send("sent"), grad_enabled()) == ("sent", True)
    assert (values.throw(ValueError()), grad_enabled()) == (False, True)
    with pytest.raises(StopIteration) as end:
        next(values)
    assert (end.value.value, grad_enabled()) == (False, True)


def test_a_decorated_generator_cleans_up_inside():
    seen = []

    @ow.no_grad()
    def generator():
        try:
            yield
        finally:
            seen.append(grad_enabled())

    values = generator()
    next(values)
    values.close()
    assert seen == [False]


def test_an_asynchronous_generator_is_not_decorated():
    with pytest.raises(TypeError, match="write 'with' in batches itself"):

        @ow.no_grad()
        async def batches():
            yield


# Autocast.


def test_tasks_in_one_autocast_go_back_through_the_same_rounded_parameter():
    w = ow.Parameter([[1.0, 2.0], [3.0, 4.0]], device="cpu")

    async def backward():
        loss = (ow.ones((1, 2), device="cpu") @ w).sum()
        await asyncio.sleep(0)
        loss.backward()

    async def both():
        with ow.autocast():
            await asyncio.gather(backward(), backward())

    asyncio.run(both())
    assert w.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


# Backward passes.


def test_a_backward_pass_of_another_thread_is_not_one_here():
    with walking_back():
        assert not runs_backward()


def test_what_another_thread_computes_is_no_part_of_a_checkpoint():
    x = ow.tensor([2.0], device="cpu", requires_grad=True)
    other = ow.tensor([3.0], device="cpu", requires_grad=True)
    made = []

    def compute():
        with ThreadPoolExecutor(1) as pool:
            made.append(pool.submit(lambda: other * 2.0).result())
        return x * made[0]

    _, sources = sources_of(compute)
    assert {id(source) for source in sources} == {id(x), id(made[0])}


# Policies of placement.


def test_a_policy_outside_of_blocks_holds_in_threads_that_run_and_that_start_later():
    with ThreadPoolExecutor(1) as running:
        running.submit(current).result()
        ow.placement("cpu")
        try:
            for pool in (running, ThreadPoolExecutor(1)):
                policy = pool.submit(current).result()
                assert [candidate.name for candidate in policy.candidates] == ["cpu"]
        finally:
            ow.placement(None)
        assert running.submit(current).result() is current() is None


def test_a_policy_in_a_block_ends_with_it_and_is_no_other_thread_s():
    with ThreadPoolExecutor(1) as other:
        with ow.placement("minimize_transfers"):
            before = current()
            ow.placement("cpu")
            assert [candidate.name for candidate in current().candidates] == ["cpu"]
            assert other.submit(current).result() is None
            with ow.placement("minimize_transfers"):
                assert not current().candidates
            assert [candidate.name for candidate in current().candidates] == ["cpu"]
        assert (before is not None, current()) == (True, None)


def test_a_policy_in_a_task_leaves_the_block_around_the_task_alone():
    async def train():
        with ow.placement("minimize_transfers"):
            policy = current()

            async def evaluate():
                ow.placement("cpu")
                return [candidate.name for candidate in current().candidates]

            assert await asyncio.create_task(evaluate()) == ["cpu"]
            assert current() is policy
        assert current() is None

    asyncio.run(train())


def test_blocks_of_two_threads_made_at_once_leave_no_policy():
    both_made, both_in = threading.Barrier(2), threading.Barrier(2)

    def use(_):
        block = ow.placement("cpu")
        both_made.wait(60)
        with block:
            both_in.wait(60)
        return current()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(use, range(2))) == [None, None]
