"""Policies of where operations and compiled steps run: counted in bytes and dispatches, on the processor and a GPU."""

import itertools
import json
import threading
from collections import Counter

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import ShapeError
from optirs_web.placing import cache
from optirs_web.placing.choice import Fastest
from optirs_web.placing.stretches import _trial

ROWS = 8
NBYTES = 4 * ROWS * ROWS
SLOW, FAST = 1.0, 1e-3  # seconds; so far apart that nothing is measured


@pytest.fixture(autouse=True)
def cpu(open_device):
    return open_device("cpu")


@pytest.fixture(autouse=True)
def gpu(open_device):
    return open_device("vulkan")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch, gpu):
    """An empty cache folder, nothing that was learned before, and no policy left behind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    vars(gpu).pop("_fastest", None)
    yield tmp_path
    ow.placement(None)


def figures(transfer=1e-6, **seconds):
    """What a machine would have been measured to take: for every size alike, FAST unless said otherwise."""
    kinds = [f"{where}_{kind}" for where in ("cpu", "gpu") for kind in ("light", "heavy", "reduction", "product")]
    curves = {one.replace("_", "."): [[1.0, seconds.get(one, FAST)], [1e12, seconds.get(one, FAST)]] for one in kinds}
    return {
        **curves,
        "up": [[1.0, transfer], [1e12, transfer]],
        "down": [[1.0, transfer], [1e12, transfer]],
        "operations": {},
    }


def known(cpu, gpu, **seconds):
    """Have these figures in the cache."""
    cache.store(cache.identity([cpu.info, gpu.info]), figures(**seconds))


def matrix(device="cpu", value=0.5):
    return ow.tensor(np.full((ROWS, ROWS), value, np.float32), device=device)


def counted(device, call):
    """What a call returns, and the bytes that were written to the device and read from it."""
    up, write, before = [], device.write, device.stats.copy()
    device.write = lambda view, data: up.append(data.nbytes) or write(view, data)
    try:
        result = call()
    finally:
        del device.write
    return result, (sum(up), (device.stats - before).bytes_down)


# Where operations run.


@pytest.mark.parametrize(("policy", "name"), [("cpu", "cpu"), ("gpu", "vulkan")])
@pytest.mark.parametrize("start", ["cpu", "vulkan"])
def test_a_forced_policy_runs_everything_there(policy, name, start):
    x = matrix(start)
    with ow.placement(policy):
        y = (x @ x + 1.0).tanh()
        z = ow.concat([y, x]).sum(axis=0)
    assert (y.device.name, z.device.name, x.device.name) == (name, name, start)
    np.testing.assert_allclose(y.numpy(), np.tanh(np.full((ROWS, ROWS), 0.25 * ROWS + 1)), rtol=1e-5)


def test_results_stay_where_they_were_computed_and_nothing_is_copied_back(gpu):
    def chain(y):
        for _ in range(5):
            y = (y * 0.5 + 1.0).exp().sum(axis=0, keepdims=True) + y
        return y

    x = matrix()
    with ow.placement("gpu"):
        y, first = counted(gpu, lambda: chain(x))
        _, second = counted(gpu, lambda: chain(x))
    assert y.device is gpu
    assert (first, second) == ((NBYTES, 0), (0, 0))


def test_a_weight_is_carried_once_for_each_change(gpu):
    x, w = matrix("vulkan"), ow.Parameter(matrix())
    optimizer = ow.optim.SGD([w], lr=0.5)

    def use():
        with ow.no_grad():
            return [x @ w, x @ w.T, w * 2.0]

    def change():
        w.grad = matrix()
        optimizer.step()

    with ow.placement("gpu"):
        uploads = [counted(gpu, use)[1], counted(gpu, use)[1]]
        w.assign(matrix(value=2.0))
        (product, *_), counts = counted(gpu, use)
        uploads += [counts]
        change()
        (after, *_), counts = counted(gpu, use)
        uploads += [counts, counted(gpu, use)[1]]
    assert uploads == [(NBYTES, 0), (0, 0), (NBYTES, 0), (NBYTES, 0), (0, 0)]
    assert product.numpy()[0, 0] == 0.5 * 2.0 * ROWS
    assert after.numpy()[0, 0] == 0.5 * 1.75 * ROWS


def test_what_a_compiled_step_writes_is_carried_again(gpu):
    w = ow.Parameter([1.0], device="cpu")
    optimizer = ow.optim.SGD([w], lr=0.5)

    def train_step():
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    step = ow.compile(train_step, device="cpu")
    found = []
    for _ in range(3):
        with ow.placement("gpu"), ow.no_grad():
            found.append((w * 2.0).item())
        step()
    assert found == [2.0, 1.0, 0.0]


def test_a_gradient_that_is_added_to_is_carried_again(gpu):
    w = ow.Parameter([1.0, 1.0], device="cpu")
    norms = []
    for _ in range(3):
        with ow.placement("cpu"):
            (w * 3.0).sum().backward()
        with ow.placement("gpu"):
            norms.append(w.grad.sum().item())
    assert norms == [6.0, 12.0, 18.0]


def test_a_slice_of_something_large_is_carried_alone(gpu):
    x = ow.tensor(np.arange(64, dtype=np.float32).reshape(64, 1), device="cpu")
    with ow.placement("gpu"):
        y, counts = counted(gpu, lambda: x[40:42] * 2.0)
    assert (y.tolist(), counts) == ([[80.0], [82.0]], (8, 0))


def test_minimize_transfers_runs_where_most_bytes_are(gpu):
    large, small = matrix("vulkan"), ow.ones((ROWS, 1), device="cpu")
    with ow.placement("minimize_transfers"):
        y, counts = counted(gpu, lambda: large @ small)
        alone = small * 2.0
        z, others = counted(gpu, lambda: ow.ones((2,), device="vulkan") + matrix().sum())
    assert (y.device.name, counts) == ("vulkan", (4 * ROWS, 0))
    assert alone.device.name == "cpu"
    assert (z.device.name, others) == ("vulkan", (4, 0))


def test_rows_are_looked_up_where_the_table_lies():
    table = ow.Parameter(np.ones((4, 2), np.float32), device="cpu")
    with ow.placement("gpu"):
        rows = ow.nn.functional.embedding(ow.tensor([1, 2, 1], device="vulkan"), table)
        scaled = rows * 2.0
        scaled.sum().backward()
    assert (rows.device.name, scaled.device.name) == ("cpu", "vulkan")
    assert table.grad.tolist() == [[0.0, 0.0], [4.0, 4.0], [2.0, 2.0], [0.0, 0.0]]


# Backward.


def test_backward_runs_where_forward_ran_and_a_gradient_comes_back_once(gpu):
    x, w = matrix(), ow.Parameter(matrix(value=0.1))
    devices = []
    with ow.placement("gpu"):
        y = x @ w
        z = (y.tanh() * w).sum()
        for one in (y, z):
            one.register_hook(lambda g: devices.append(g.device.name))
        _, counts = counted(gpu, z.backward)
    assert devices == ["vulkan", "vulkan"]
    assert w.grad.device.name == "cpu"
    assert counts == (0, NBYTES)
    inner = np.full((ROWS, ROWS), 0.05 * ROWS)
    slope = 0.1 * (1 - np.tanh(inner) ** 2)
    expected = np.tanh(inner) + np.full((ROWS, ROWS), 0.5) @ slope
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-5)


def test_backward_outside_of_the_block_and_under_another_policy_is_where_forward_was():
    w = ow.Parameter([2.0], device="cpu")
    devices = []
    with ow.placement("gpu"):
        y = w * w
        y.register_hook(lambda g: devices.append(g.device.name))
        loss = y.sum()
    with ow.placement("cpu"):
        loss.backward()
    assert (devices, w.grad.tolist()) == (["vulkan"], [4.0])


def test_a_checkpointed_part_is_computed_again_under_a_policy():
    w = ow.Parameter([2.0], device="cpu")
    x = ow.tensor([3.0], device="vulkan")
    with ow.placement("gpu"):
        ow.checkpoint(lambda one: (w * one).exp(), x).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 3.0 * np.exp(6.0), rtol=1e-5)


def test_second_derivatives_pass_through_moves():
    x = ow.tensor([3.0], device="cpu", requires_grad=True)
    with ow.placement("gpu"):
        (first,) = ow.gradients((x * x * x).sum(), [x], create_graph=True)
        (second,) = ow.gradients(first.sum(), [x])
    assert (first.item(), second.item(), second.device.name) == (27.0, 18.0, "cpu")


# Blocks.


def mixes():
    return matrix("cpu") + matrix("vulkan")


def test_without_a_policy_operands_on_two_devices_are_an_error():
    with ow.placement("gpu"):
        mixes()
        with pytest.raises(ShapeError, match="on cpu and vulkan"), ow.placement(None):
            mixes()
    with pytest.raises(ShapeError, match="on cpu and vulkan"):
        mixes()


def test_blocks_nest_and_a_plain_call_stays():
    with ow.placement("gpu") as outer:
        with ow.placement("cpu"):
            assert mixes().device.name == "cpu"
        assert mixes().device.name == "vulkan"
    ow.placement("cpu")
    assert mixes().device.name == "cpu"
    with outer:
        assert mixes().device.name == "vulkan"
    ow.placement(None)
    with pytest.raises(ShapeError):
        mixes()


def test_a_policy_ends_with_its_block_when_an_error_leaves_it():
    with pytest.raises(ZeroDivisionError), ow.placement("gpu"):
        raise ZeroDivisionError
    with pytest.raises(ShapeError):
        mixes()


def test_a_policy_holds_in_its_thread_alone():
    found = []

    def other():
        try:
            mixes()
        except ShapeError as error:
            found.append(error)

    with ow.placement("gpu"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(found) == 1


@pytest.mark.parametrize("name", ["fast", "GPU", "", 3])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="one of auto, gpu, cpu, minimize_transfers"):
        ow.placement(name)
    with pytest.raises(ShapeError):
        mixes()


def test_which_gpu_may_be_said():
    with ow.placement("gpu", gpu="cpu"):
        assert mixes().device.name == "cpu"


# The choice of "auto".


def test_auto_takes_the_faster_device_for_each_operation(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, gpu_product=SLOW)
    x = matrix()
    with ow.placement("auto"):
        y = x @ x
        z = y.exp()
        assert [one.device.name for one in (y, z, z @ x)] == ["cpu", "vulkan", "cpu"]


def test_auto_leaves_operands_where_moving_them_costs_more(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=10 * SLOW)
    with ow.placement("auto"):
        assert matrix().exp().device.name == "cpu"
        assert matrix("vulkan").exp().device.name == "vulkan"


def test_auto_moves_a_chain_that_has_lost_enough_and_next_time_at_once(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=SLOW)  # to be at home counts twice a transfer

    def chain():
        x = matrix()
        devices = []
        for _ in range(6):
            x = x.exp()
            devices.append(x.device.name)
        return devices

    with ow.placement("auto"):
        first, second = chain(), chain()
    assert first == ["cpu"] * 2 + ["vulkan"] * 4
    assert second == ["vulkan"] * 6


def test_auto_moves_a_weight_that_is_used_again_and_again(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=SLOW)
    w = matrix()
    with ow.placement("auto"):
        devices = [w.exp().device.name for _ in range(5)]
        _, counts = counted(gpu, lambda: w.exp())
    assert devices[0] == "cpu"
    assert devices[-1] == "vulkan"
    assert counts == (0, 0)


def places_of_calls(calls, of_a_call):
    """Where the operations of each call ran, and the results; each call ends with a wait."""
    places, results = [], []
    with ow.placement("auto"):
        for _ in range(calls):
            tensors = of_a_call()
            places.append(" ".join(dict.fromkeys(one.device.name for one in tensors)))
            results.append(tensors[-1].tolist())
    return places, results


def test_auto_tries_what_comes_again_each_way_and_settles(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, gpu_product=SLOW)
    w = matrix()

    def call():
        x = w @ w
        y = x.exp()
        return x, y, y @ w

    places, results = places_of_calls(60, call)
    turns = [(place, len(list(those))) for place, those in itertools.groupby(places)]
    assert turns[0][0] == places[0] == "cpu vulkan"
    assert {place for place, _ in turns} == {"cpu vulkan", "cpu", "vulkan"}
    assert turns[-1][1] >= 60 - (1 + 2 * 3 * 7)  # a first look, and two rounds of seven turns for each of three ways
    for one in results:
        np.testing.assert_allclose(one, results[0], rtol=1e-6)


def test_auto_does_not_try_a_device_on_which_operations_would_take_far_longer(cpu, gpu):
    known(cpu, gpu, gpu_heavy=SLOW)
    places, _ = places_of_calls(30, lambda: [matrix().exp()])
    assert set(places) == {"cpu"}


def test_a_stretch_is_known_by_its_operations_and_by_what_came_before(cpu, gpu):
    known(cpu, gpu)
    stretches = Fastest.between([cpu, gpu])._stretches
    lengths = itertools.cycle([1, 2, 5])  # all begin alike

    def call():
        x = matrix()
        return [x := x.exp() for _ in range(next(lengths))]

    places_of_calls(3 * 40, call)
    assert len(stretches._known) == 3
    assert all(one.is_settled for one in stretches._known.values())


def test_what_an_operation_waits_for_does_not_end_a_stretch(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW)
    stretches = Fastest.between([cpu, gpu])._stretches
    places_of_calls(4, lambda: [y := matrix().exp(), y @ matrix()])  # both are carried over
    assert len(stretches._known) == 1


def settled(seconds_of):
    """The way that a trial settles for, and how many turns each has had."""
    trial = _trial(list(seconds_of))
    turns = [next(trial)]
    while True:
        try:
            turns.append(trial.send(seconds_of[turns[-1]]))
        except StopIteration as over:
            return over.value, Counter(turns)


def test_a_trial_settles_for_the_fastest_way_and_soon_leaves_a_hopeless_one():
    assert settled({"a": 1.1, "b": 1.0, "c": 1.2}) == ("b", {"a": 14, "b": 14, "c": 14})
    assert settled({"a": 1e-3, "b": 5e-3}) == ("a", {"a": 7, "b": 7})  # clear, but too short to be called hopeless
    assert settled({"a": 0.1, "b": 0.5}) == ("a", {"a": 7, "b": 2})


def test_an_error_is_that_of_the_operation(cpu, gpu):
    known(cpu, gpu)
    with ow.placement("auto"), pytest.raises(ShapeError, match="3 columns meet 2 rows"):
        ow.ones((2, 3), device="cpu") @ ow.ones((2, 3), device="cpu")


def test_what_is_compared_by_measuring_draws_no_random_numbers(cpu, gpu):
    known(cpu, gpu)  # as fast on both
    x = ow.ones((64,), device="cpu")

    def draws():
        ow.manual_seed(3)
        return ow.nn.functional.dropout(x, 0.5).tolist() + ow.rand((4,), device="cpu").tolist()

    plain = draws()
    with ow.placement("auto"):
        assert draws() == plain


# The cache.


def test_figures_are_measured_at_first_use_and_kept(own_cache, cpu, gpu):
    with ow.placement("auto"):
        matrix() @ matrix()
    file = own_cache / "optirs-web" / "placement.json"
    written = file.read_text()
    ((key, kept),) = json.loads(written).items()
    assert {"llvmpipe" in key or gpu.info.description in key, f"NumPy {np.__version__}" in key} == {True}
    assert cache.load(key) == kept
    assert [one.name for one in file.parent.iterdir()] == ["placement.json"]
    with ow.placement("auto"):
        matrix() @ matrix()
    assert file.read_text() == written


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: "",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: "[1, 2]",
        lambda whole: whole.replace("cpu.light", "cpu.other"),
        lambda whole: whole.replace("0.001", "NaN"),
        lambda whole: whole.replace("0.001", "-0.001"),
        lambda whole: whole.replace("0.001", '"0.001"'),
        lambda whole: whole.replace('"operations": {}', '"operations": {"add": 1}'),
        lambda whole: whole.replace("KEY", "another machine"),
    ],
)
def test_a_damaged_or_foreign_file_is_not_used(own_cache, damage):
    cache.store("KEY", figures())
    file = own_cache / "optirs-web" / "placement.json"
    assert cache.load("KEY") == figures()
    file.write_text(damage(file.read_text()))
    assert cache.load("KEY") is None
    cache.store("KEY", figures(transfer=0.5))
    assert cache.load("KEY") == figures(transfer=0.5)


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache.store("KEY", figures())
    assert cache.load("KEY") is None


# Compiled steps.


def perceptron(accumulates=False, **options):
    ow.manual_seed(0)
    model = ow.nn.Sequential(ow.nn.Linear(4, 8, device="cpu"), ow.nn.Tanh(), ow.nn.Linear(8, 3, device="cpu"))
    optimizer = ow.optim.AdamW(model.parameters(), lr=0.05)

    def train_step(x, y):
        if not accumulates:
            optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), y)
        loss.backward()
        if not accumulates:
            optimizer.step()
        return loss

    return model, optimizer, ow.compile(train_step, **options)


X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
Y = np.array([0, 1, 2, 0, 1, 2], np.int32)


def trained(policy, calls):
    model, optimizer, step = perceptron()
    with ow.placement(policy):
        results = [step(X, Y) for _ in range(calls)]
    return model, optimizer, [one.device.name for one in results], [one.item() for one in results]


def test_a_forced_step_moves_what_it_uses_and_nothing_else(gpu):
    other = ow.Parameter([1.0], device="cpu")
    model, optimizer, step = perceptron()
    with ow.placement("gpu"):
        loss = step(X, Y)
        _, counts = counted(gpu, lambda: step(X, Y))
    assert loss.device is gpu
    assert {one.device for one in model.parameters()} == {gpu}
    assert {one.device for state in optimizer.state.values() for one in state.values()} == {gpu}
    assert other.device.name == "cpu"
    assert counts == (X.nbytes + Y.nbytes, 0)


def test_a_step_that_was_moved_goes_on_as_if_it_had_not_been():
    model, optimizer, _, losses = trained(None, 4)
    moved, its_optimizer, devices, its_losses = trained("gpu", 4)
    assert devices == ["vulkan"] * 4
    np.testing.assert_allclose(its_losses, losses, rtol=1e-4)
    for one, other in zip(model.parameters(), moved.parameters(), strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-3, atol=1e-5)
    state, its_state = (one.state_dict()["state"] for one in (optimizer, its_optimizer))
    assert {key: float(one["step"]) for key, one in its_state.items()} == dict.fromkeys(state, 4.0)


def test_auto_tries_both_devices_runs_each_call_once_and_settles():
    calls = 260
    _, _, _, losses = trained(None, calls)
    _, optimizer, devices, its_losses = trained("auto", calls)
    assert set(devices) == {"cpu", "vulkan"}
    assert len(set(devices[-60:])) == 1
    assert float(optimizer.state_dict()["state"][0]["step"]) == calls
    np.testing.assert_allclose(its_losses, losses, rtol=1e-2, atol=1e-4)


def test_a_step_over_the_same_parameters_goes_with_the_first():
    model, _, step = perceptron()
    evaluate = ow.compile(lambda x: model(x))
    with ow.placement("gpu"):
        step(X, Y)
    with ow.placement("auto"):
        devices = {evaluate(X).device.name for _ in range(30)}
    assert devices == {"vulkan"}


def test_a_step_moves_back_under_another_policy():
    model, _, step = perceptron()
    for policy, name in (("gpu", "vulkan"), ("cpu", "cpu"), ("gpu", "vulkan")):
        with ow.placement(policy):
            assert step(X, Y).device.name == name
    assert {one.device.name for one in model.parameters()} == {"vulkan"}


def test_a_step_that_adds_to_gradients_stays_with_them():
    model, _, step = perceptron(accumulates=True)
    step(X, Y)
    before = [one.grad.numpy().copy() for one in model.parameters()]
    with ow.placement("gpu"):
        assert step(X, Y).device.name == "cpu"
    for one, once in zip(model.parameters(), before, strict=True):
        np.testing.assert_allclose(one.grad.numpy(), 2 * once, rtol=1e-5)


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"recover": True}])
def test_a_step_with_a_device_of_its_own_or_with_snapshots_stays(options):
    _, _, step = perceptron(**options)
    with ow.placement("gpu"):
        assert step(X, Y).device.name == "cpu"


def test_a_move_leaves_the_snapshot_that_was_taken():
    w = ow.Parameter([4.0], device="cpu")
    optimizer = ow.optim.SGD([w], lr=0.25)

    def train_step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()

    step = ow.compile(train_step)
    ow.snapshot("cpu")
    step()
    with ow.placement("gpu"):
        step()
    assert w.tolist() == [1.0]
    w.revive(ow.device("cpu"))
    assert w.tolist() == [4.0]


def test_averages_and_buffers_go_with_the_parameters(gpu):
    w, count = ow.Parameter([4.0], device="cpu"), ow.nn.Buffer([0.0], device="cpu")
    optimizer, average = ow.optim.SGD([w], lr=0.25), ow.optim.averaging.EMA([w], decay=0.5)

    def train_step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        average.update_parameters()
        count.assign(count + 1.0)

    step = ow.compile(train_step)
    step()
    with ow.placement("gpu"):
        step()
    assert (w.device, count.device) == (gpu, gpu)
    assert (w.tolist(), count.tolist()) == ([1.0], [2.0])
    np.testing.assert_allclose(average.averages()[0].tolist(), [(2.0 * 0.25 + 1.0 * 0.5) / 0.75], rtol=1e-6)


def test_constants_come_along_to_a_step(gpu):
    w = ow.Parameter([2.0], device="vulkan")
    constant = ow.tensor([3.0], device="cpu")
    step = ow.compile(lambda: (w * constant).sum())
    with ow.placement("minimize_transfers"):
        assert step().item() == 6.0
    assert w.device is gpu


def test_dropout_in_a_step_that_moves_does_not_draw_the_same_again():
    x = ow.ones((64,), device="cpu")
    w = ow.Parameter(np.ones(64, np.float32), device="cpu")
    step = ow.compile(lambda: ow.nn.functional.dropout(w * x, 0.5))
    ow.manual_seed(1)
    drawn = [step().tolist() for _ in range(3)]
    ow.manual_seed(1)
    with ow.placement("cpu"):
        again = [step().tolist()]
    with ow.placement("gpu"):
        again += [step().tolist() for _ in range(2)]
    assert again == drawn
