"""A device that is lost during training: training continues from the last snapshot."""

import textwrap

import pytest
from processes import run_python

TRAINING = """
import optirs_web as ow

def make(device, **options):
    w = ow.Parameter([[0.5, -1.0], [2.0, 0.25]], device=device)
    b = ow.Parameter([0.0, 0.0], device=device)
    optimizer = ow.optim.AdamW([w, b], lr=0.1)
    def train_step(x):
        optimizer.zero_grad()
        loss = ow.cross_entropy(x @ w + b, [0, 1])
        loss.backward()
        optimizer.step()
        return loss
    return (w, b), optimizer, ow.compile(train_step, device=device, **options)

def batch(number):
    return [[1.0 + number, -1.0], [0.5, 0.1 * number]]

def values(params, optimizer):
    state = optimizer.state_dict()["state"]
    return [one.tolist() for one in params], [float(state[0]["step"]), state[1]["exp_avg_sq"].tolist()]

def of_steps(device, numbers):
    params, optimizer, step = make(device)
    for number in numbers:
        step(batch(number))
    return values(params, optimizer)
"""


LOSE = {
    "cpu": "def lose():\n    ow.close_device(ow.device('cpu'))\n",
    "vulkan": "def lose():\n    ow.device('vulkan')._backend._device.destroy()\n",
}


@pytest.fixture(params=LOSE)
def run(request, open_device):
    """`run(program)`: its lines, in a process whose device ON is lost when `lose()` is called."""
    name = request.param
    open_device(name)
    return lambda program: run_python(f"{TRAINING}\n{LOSE[name]}\nON = {name!r}\n{textwrap.dedent(program)}")


def test_a_step_compiled_with_recover_goes_on_from_the_last_snapshot(run):
    lines = run(
        """
        params, optimizer, step = make(ON, recover=True, snapshot_every=5)
        for number in range(10):
            if number == 7:
                device = ow.device(ON)
                lose()
            loss = step(batch(number))
        print(ow.device(ON) is not device, params[0].device is ow.device(ON))
        print(values(params, optimizer) == of_steps(ON, [0, 1, 2, 3, 4, 7, 8, 9]))
        """
    )
    assert lines == ["True True", "True"]


def test_a_step_without_arguments_recovers_too(run):
    lines = run(
        """
        w = ow.Parameter([4.0], device=ON)
        optimizer = ow.optim.SGD([w], lr=0.25)
        def train_step():
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
        step = ow.compile(train_step, device=ON, recover=True, snapshot_every=1)
        step()
        lose()
        step()
        print(w.tolist())
        """
    )
    assert lines == ["[2.0]"]  # the snapshot before the first call, and one step


@pytest.mark.slow
@pytest.mark.parametrize("yields", [True, False])
def test_in_an_event_loop_snapshots_are_taken_whether_it_gets_time_or_not(run, yields):
    lines = run(
        f"""
        import asyncio
        async def main():
            params, optimizer, step = make(ON, recover=True, snapshot_every=2)
            for number in range(6):
                step(batch(number))
                await asyncio.sleep(0.01 if {yields} else 0) if {yields} else None
            lose()
            step(batch(6))
            print(values(params, optimizer) == of_steps(ON, [0, 1, 2, 3, 6]))
            print(len(asyncio.all_tasks()) <= 3)
        asyncio.run(main())
        """
    )
    assert lines == ["True", "True"]


def test_recover_goes_on_from_a_snapshot_that_was_asked_for(run):
    lines = run(
        """
        params, optimizer, step = make(ON)
        for number in range(3):
            step(batch(number))
        ow.snapshot()
        step(batch(3))
        lose()
        for call in (lambda: step(batch(4)), ow.snapshot):
            try:
                call()
            except ow.errors.DeviceLostError as error:
                print("recover()" in str(error) or "was closed" in str(error))
        print([one.name == ON for one in ow.recover()], ow.recover())
        step(batch(4))
        print(values(params, optimizer) == of_steps(ON, [0, 1, 2, 4]))
        """
    )
    assert lines == ["True", "True", "[True] []", "True"]


def test_a_learning_rate_on_the_device_goes_on_too(run):
    lines = run(
        """
        w, lr = ow.Parameter([1.0], device=ON), ow.Parameter(0.5, device=ON)
        groups = [{"params": [w]}, {"params": [ow.Parameter([1.0], device=ON)], "lr": ow.tensor(0.25, device=ON)}]
        optimizer = ow.optim.SGD(groups, lr=lr)
        ow.snapshot()
        lose()
        try:
            w.tolist()
        except ow.errors.DeviceLostError:
            ow.recover()
        optimizer.step(grads=[[1.0], [1.0]])
        print([one["params"][0].tolist() for one in optimizer.param_groups], optimizer.param_groups[0]["lr"] is lr)
        """
    )
    assert lines == ["[[0.5], [0.75]] True"]


def test_a_parameter_that_is_younger_than_its_optimizer_goes_on_too(run):
    lines = run(
        """
        w = ow.Parameter([1.0], device=ON)
        optimizer = ow.optim.SGD([w], lr=1.0)
        late = ow.Parameter([2.0], device=ON)
        optimizer.add_param_group({"params": [late]})
        ow.snapshot()
        lose()
        try:
            w.tolist()
        except ow.errors.DeviceLostError:
            ow.recover()
        optimizer.step(grads=[[0.5], [0.5]])
        print(w.tolist(), late.tolist())
        """
    )
    assert lines == ["[0.5] [1.5]"]


def test_what_is_read_later_is_as_it_was_at_the_call(run):
    lines = run(
        """
        import asyncio
        async def main():
            params, optimizer, step = make(ON)
            step(batch(0))
            want, names = values(params, optimizer), ("w", "b")
            snapshot = ow.snapshot_async()
            state = optimizer.state_dict_async()
            content = ow.dump_checkpoint_async(dict(zip(names, params)), optimizer)
            step(batch(1))
            optimizer.param_groups[0].update(lr=0.5, amsgrad=True)
            optimizer.add_param_group({"params": [ow.Parameter([0.0], device=ON)]})
            optimizer.step()
            await snapshot
            print(float((await state)["state"][0]["step"]), (await optimizer.state_dict_async())["state"][0]["step"])
            others, other, _ = make(ON)
            ow.load_checkpoint(await content, dict(zip(names, others)), other)
            print(values(others, other) == want, other.param_groups[0]["lr"])
        asyncio.run(main())
        """
    )
    assert lines == ["1.0 3.0", "True 0.1"]


def test_without_a_snapshot_recover_says_so_and_changes_nothing(run):
    lines = run(
        """
params, optimizer, step = make(ON)
step(batch(0))
lose()
for call in (lambda: step(batch(1)), ow.recover):
    try:
        call()
    except ow.errors.DeviceLostError as error:
        print(error)
"""
    )
    assert "no snapshot of it: call optirs_web.snapshot()" in lines[1]


def test_parameters_that_are_gone_need_no_snapshot(run):
    lines = run(
        """
import gc
make(ON)
gc.collect()
keep = ow.Parameter([1.0, 2.0], device=ON)
ow.snapshot()
lose()
try:
    keep.tolist()
except ow.errors.DeviceLostError:
    ow.recover()
print(keep.tolist())
"""
    )
    assert lines == ["[1.0, 2.0]"]


@pytest.mark.slow
@pytest.mark.parametrize("then", [False, True])
@pytest.mark.parametrize("now", [False, True])
def test_parameters_that_are_swapped_for_their_averages_stay_so(run, then, now):
    lines = run(
        f"""
w = ow.Parameter([1.0], device=ON)
average = ow.optim.averaging.SWA([w])
average.update_parameters()
w.assign([3.0])
if {then}:
    average.swap()
ow.snapshot()
if {then != now}:
    average.swap()
lose()
try:
    w.item()
except ow.errors.DeviceLostError:
    ow.recover()
print(w.item(), average.averages()[0].item())
if {now}:
    average.swap()
average.update_parameters()
print(w.item(), average.averages()[0].item())
"""
    )
    assert lines == ["1.0 1.0" if now else "3.0 1.0", "3.0 2.0"]


def test_snapshot_every_is_a_number_of_calls():
    import optirs_web as ow

    for recover in (True, False):
        with pytest.raises(ValueError, match="snapshot_every must be 1 or more, not 0"):
            ow.compile(lambda: None, recover=recover, snapshot_every=0)


@pytest.mark.parametrize("recover", ["nonsense", "vulkan:first", ""])
def test_recovery_is_to_a_device_that_can_exist(recover):
    import optirs_web as ow

    with pytest.raises(ow.errors.DeviceNotAvailableError, match=f"'{recover}'"):
        ow.compile(lambda: None, recover=recover)
    with pytest.raises(TypeError, match="recover must be True, False or the name of a device, not None"):
        ow.compile(lambda: None, recover=None)
