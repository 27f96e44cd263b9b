"""Threads that share a device, or have one each: every result is that of the same work in one thread, bit for bit."""

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web import nn

STEPS = 8
THREADS = 4


@pytest.fixture(autouse=True)
def switches_often():
    """Python goes from thread to thread as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def perceptron(device, seed):
    rng = np.random.default_rng(seed)
    weights = [
        ow.Parameter(rng.standard_normal(shape).astype(np.float32), device=device) for shape in ((8, 16), (16, 4))
    ]
    batches = [rng.standard_normal((32, 8)).astype(np.float32) for _ in range(STEPS)]
    return weights, batches


def loss_of(weights, x):
    return ((x @ weights[0]).tanh() @ weights[1]).square().mean()


def eager(device, seed):
    weights, batches = perceptron(device, seed)
    optimizer = ow.optim.AdamW(weights, lr=0.01)
    losses = []
    for number, batch in enumerate(batches):
        loss = loss_of(weights, ow.tensor(batch, device=device))
        optimizer.zero_grad()
        loss.backward()
        ow.optim.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        losses.append(loss)
        if number % 3 == 0:
            loss.item()
    return values([*losses, *weights])


def compiled(device, seed):
    weights, batches = perceptron(device, seed)
    optimizer = ow.optim.Adam(weights, lr=0.01)

    @ow.compile
    def step(x):
        loss = loss_of(weights, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(ow.tensor(batch, device=device)) for batch in batches]
    return values([*losses, *weights])


def in_halves(device, seed):
    weights, batches = perceptron(device, seed)
    optimizer = ow.optim.SGD(weights, lr=0.1, momentum=0.9)
    for batch in batches:
        with ow.autocast("bfloat16"):
            loss = loss_of(weights, ow.tensor(batch, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return values(weights)


def through_the_pool(device, seed):
    """Allocate and free tensors repeatedly, some by the garbage collector; return their total."""
    rng = np.random.default_rng(seed)
    total = ow.zeros((33,), device=device)
    for number in range(4 * STEPS):
        cycle = [ow.tensor(rng.standard_normal(33).astype(np.float32), device=device)]
        cycle.append(cycle)
        total = total + cycle[0] * 2.0 - cycle[0]
        del cycle
        if number % 5 == 0:
            gc.collect()
    return values([total])


def values(tensors):
    return [tensor.numpy().tobytes() for tensor in tensors]


JOBS = [eager, compiled, in_halves, through_the_pool]


def each_in_a_thread(calls):
    """Run each call in a thread, all at once, and return their results."""
    at_once = threading.Barrier(len(calls))

    def begun(call):
        at_once.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        started = [pool.submit(begun, call) for call in calls]
        wait(started)
        return [future.result() for future in started]


@pytest.mark.parametrize("job", JOBS)
def test_threads_share_a_device(device, job):
    expected = [job(device, seed) for seed in range(THREADS)]
    before = ow.stats()
    alone = job(device, 0)
    counted = ow.stats() - before
    assert alone == expected[0]
    before = ow.stats()
    assert each_in_a_thread([lambda seed=seed: job(device, seed) for seed in range(THREADS)]) == expected
    together = ow.stats() - before
    for name in ("dispatches", "copies", "replays", "bytes_down"):
        assert getattr(together, name) == THREADS * getattr(counted, name), name


def test_different_work_shares_devices(open_device):
    devices = [ow.device("cpu"), open_device("vulkan")]
    calls = [lambda job=job, device=device: job(device, 3) for job in JOBS for device in devices]
    assert each_in_a_thread(calls) == [call() for call in calls]


def test_memory_goes_back_whichever_thread_had_it(device):
    def live():
        gc.collect()
        device.synchronize()
        return device.memory_stats()

    through_the_pool(device, 0)
    before = live()
    each_in_a_thread([lambda seed=seed: through_the_pool(device, seed) for seed in range(THREADS)])
    after = live()
    assert (after.live_buffers, after.live_bytes, after.asked_bytes) == (
        before.live_buffers,
        before.live_bytes,
        before.asked_bytes,
    )


def test_a_compiled_step_is_called_by_threads_at_once(device):
    w = ow.Parameter(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
    step = ow.compile(lambda x, y: (x @ w, y * 2.0), device)

    def call(number):
        inputs = [np.full((1 + number % 2, 2), number + repeat, np.float32) for repeat in range(STEPS)]
        return [values(step(x, x)) for x in inputs], [[(x @ w.numpy()).tobytes(), (x * 2).tobytes()] for x in inputs]

    for results, expected in each_in_a_thread([lambda number=number: call(number) for number in range(THREADS)]):
        assert results == expected


def test_threads_train_the_same_parameter_and_no_step_is_lost(device):
    w = ow.Parameter(np.zeros(4, np.float32), device=device)
    optimizer = ow.optim.SGD([w], lr=1.0)

    @ow.compile
    def step(x):
        optimizer.step(grads=[x])

    def train(call):
        for _ in range(STEPS):
            call()

    one = np.full(4, -1.0, np.float32)
    replays = [lambda: train(lambda: step(one))] * 2
    eager_steps = [lambda: train(lambda: optimizer.step(grads=[one]))] * 2
    each_in_a_thread([*replays, *eager_steps])
    assert w.tolist() == [4.0 * STEPS] * 4


def test_threads_add_to_the_same_gradient(device):
    w = ow.Parameter([1.0, 2.0], device=device)

    def add():
        for _ in range(STEPS):
            (w * 3.0).sum().backward()

    each_in_a_thread([add] * THREADS)
    assert w.grad.tolist() == [3.0 * STEPS * THREADS] * 2


def test_threads_draw_different_random_numbers(device):
    drawn = each_in_a_thread([lambda: [tuple(ow.rand((2,), device=device).tolist()) for _ in range(50)]] * THREADS)
    assert len({number for each in drawn for number in each}) == 50 * THREADS


def test_a_step_records_on_one_device_while_another_device_works(open_device):
    slow, other = ow.device("cpu"), open_device("vulkan")
    recording, done = threading.Event(), threading.Event()

    def waits(x):
        recording.set()
        assert done.wait(60)
        return x * 2.0

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lambda: ow.compile(waits, slow)([1.0]).tolist())
        assert recording.wait(60)
        elsewhere = eager(other, 0)
        here = (ow.ones((2,), device=slow) + 1.0).tolist()  # what is not recorded shares the device, too
        done.set()
        assert (result.result(), here) == ([2.0], [2.0, 2.0])
    assert elsewhere == eager(other, 0)


def test_two_devices_compute_side_by_side(open_device, monkeypatch):
    """Each is in the middle of its work while the other is."""
    devices = [ow.device("cpu"), open_device("vulkan")]
    both = threading.Barrier(2)
    for device in devices:
        submit = device.backend.submit

        def submitted(commands, submit=submit):
            both.wait(60)
            submit(commands)

        monkeypatch.setattr(device.backend, "submit", submitted)

    def compute(device):
        x = ow.ones((4,), device=device) + 1.0
        device.flush()
        return x

    each_in_a_thread([lambda device=device: compute(device) for device in devices])


def test_a_device_is_opened_once_by_threads_at_once():
    lines = run_python(
        """
        import sys, threading
        from concurrent.futures import ThreadPoolExecutor
        import optirs_web as ow

        sys.setswitchinterval(1e-6)
        at_once = threading.Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            devices = list(pool.map(lambda _: at_once.wait() and None or ow.device("cpu"), range(8)))
        print(len(set(map(id, devices))), len(ow.runtime.registry.opened()))
        """
    )
    assert lines == ["1 1"]


def test_an_exception_in_the_middle_of_a_step_leaves_the_device_to_others(device):
    def fails(x):
        x * 2.0
        raise KeyboardInterrupt

    def interrupted():
        with pytest.raises(KeyboardInterrupt):
            ow.compile(fails, device)([1.0])

    each_in_a_thread([interrupted] * 2)
    assert each_in_a_thread([lambda: eager(device, 0)] * 2) == [eager(device, 0)] * 2


def test_modules_are_made_and_used_by_threads(device):
    def run(seed):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).to(device)
        for number, param in enumerate(model.parameters()):
            param.assign(np.random.default_rng((seed, number)).standard_normal(param.shape).astype(np.float32))
        x = ow.tensor(np.random.default_rng(seed).standard_normal((16, 4)).astype(np.float32), device=device)
        model(x)
        return values([model.eval()(x), *model.buffers()])

    expected = [run(seed) for seed in range(THREADS)]
    assert each_in_a_thread([lambda seed=seed: run(seed) for seed in range(THREADS)]) == expected


def test_a_child_process_uses_the_processor_that_another_thread_had_locked():
    lines = run_python(
        """
        import os, threading
        import optirs_web as ow

        device = ow.device("cpu")
        locked, leave = threading.Event(), threading.Event()

        def hold():
            with device.turn(), device.lock:
                locked.set()
                leave.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        locked.wait(60)
        child = os.fork()
        if child == 0:
            print((ow.ones((2,), device="cpu") + 1.0).tolist(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        leave.set()
        thread.join()
        """
    )
    assert lines == ["[2.0, 2.0]"]


@pytest.mark.parametrize(
    ("module", "lock", "use"),
    [
        ("optirs_web.ops.random_state", "_lock", "ow.rand((2,), device='cpu').tolist()"),
        ("optirs_web.placing.policy", "_lock", "ow.placement('cpu')"),
        ("optirs_web.recovery", "_lock", "ow.Parameter([1.0], device='cpu')"),
        ("optirs_web.recovery", "_recovering", "ow.recover()"),
    ],
)
def test_a_child_process_takes_the_locks_that_threads_of_its_parent_held(module, lock, use):
    lines = run_python(
        f"""
        import os, signal, threading
        import optirs_web as ow
        import {module} as module

        {use}  # once before, so that the fork finds everything imported
        locked, leave = threading.Event(), threading.Event()

        def hold():
            with module.{lock}:
                locked.set()
                leave.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        locked.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            {use}
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        leave.set()
        thread.join()
        print(os.waitstatus_to_exitcode(status))
        """
    )
    assert lines == ["0"]


def test_a_child_process_records_while_a_thread_of_its_parent_was_recording():
    lines = run_python(
        """
        import os, threading
        import optirs_web as ow

        ow.device("cpu")
        recording, leave = threading.Event(), threading.Event()

        def step(x):
            recording.set()
            leave.wait(60)
            return x + 1.0

        thread = threading.Thread(target=lambda: ow.compile(step, device="cpu")([1.0]))
        thread.start()
        recording.wait(60)
        child = os.fork()
        if child == 0:
            print(ow.compile(lambda x: x * 2.0, device="cpu")([3.0]).tolist(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        leave.set()
        thread.join()
        """
    )
    assert lines == ["[6.0]"]


def test_a_closure_that_a_hook_gives_leaves_the_device_to_other_threads():
    device = ow.device("cpu")
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.1)
    free = []

    def closure():
        def take_turn():
            free.append(device.turn().acquire(timeout=5))
            if free[-1]:
                device.turn().release()

        thread = threading.Thread(target=take_turn)
        thread.start()
        thread.join()

    optimizer.register_step_pre_hook(lambda *_: ((), {"closure": closure}))
    optimizer.step()
    assert free == [True]
