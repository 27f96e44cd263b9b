"""The device that "auto" selects, by measurements and by what is preferred, required or avoided; and its reasons."""

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest
from processes import run_python
from requirements import missing

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError, LaunchError, OutOfDeviceMemoryError
from optirs_web.runtime import open_devices, registry
from optirs_web.runtime.backend import AdapterInfo
from optirs_web.runtime.buffer import View
from optirs_web.runtime.choosing import figures, ranking
from optirs_web.runtime.choosing.figures import Figures

MESA = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # where the driver keeps what it compiled


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A cache folder of its own, no wishes from outside, and devices that are well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("OPTIRS_AUTO_SOFTWARE", "OPTIRS_DEVICE", "OPTIRS_POWER", "OPTIRS_REQUIRE"):
        monkeypatch.delenv(name, raising=False)
    open_devices.avoided.clear()
    yield
    open_devices.avoided.clear()


class Chooser:
    """`choose()` as "auto" does it among real adapters, or those given; notes what is opened, and for what."""

    def __init__(self, listed=None):
        self.listed = listed or {
            name: [device for device in ow.devices() if device.name == name] for name in ("vulkan", "cpu")
        }
        self.measured, self.refused = [], set()

    def choose(self, power=""):
        self.reasons = {}
        return ranking.best(self.listed, registry._BACKENDS, self._open_backend, self._open_as, power)

    def _open_backend(self, info):
        self.measured.append(info.label)
        return registry._open_backend(info)

    def _open_as(self, info, why):
        if info.label in self.refused:
            raise DeviceNotAvailableError("it refused")
        self.reasons[info.label] = why
        return ow.device(info.label) if not info.description.startswith("made up") else info


@pytest.fixture
def software(open_device):
    """Vulkan in software, which "auto" does not take by itself."""
    if not open_device("vulkan").info.software:
        missing("vulkan", "a driver in software: it is hardware here")


@pytest.fixture
def real(software, monkeypatch):
    """The processor and the software GPU of this machine, both allowed."""
    monkeypatch.setenv("OPTIRS_AUTO_SOFTWARE", "1")
    return Chooser()


def keep(chooser, **seconds):
    """Have these figures for a device as if measured: one number for all three."""
    for adapters in chooser.listed.values():
        for adapter in adapters:
            if adapter.label in seconds:
                figures.store(adapter, Figures(*[seconds[adapter.label]] * 3))


def made_up(**kinds):
    """Adapters of these kinds, with figures of one millisecond; the processor comes last."""
    listed = {name: [AdapterInfo(name, 0, f"made up {name}", kind=kind)] for name, kind in kinds.items()}
    chooser = Chooser(listed)
    keep(chooser, **dict.fromkeys(kinds, 1e-3))
    return chooser


def test_auto_takes_the_device_that_was_measured_to_be_the_fastest_and_tells_the_figures(real, tmp_path):
    chosen = real.choose()
    assert real.measured == ["vulkan", "cpu"]
    kept = json.loads((tmp_path / "optirs-web" / "measured.json").read_text())
    times = {subject.partition(": ")[0]: own["probe 1"] for subject, own in kept.items()}
    assert set(times) == {"vulkan", "cpu"}
    assert min(map(min, times.values())) > 0
    sums = {name: sum(times[name]) for name in ("vulkan", "cpu")}
    as_fast = [name for name in sums if sums[name] <= 1.1 * min(sums.values())]
    assert chosen.name == as_fast[0]
    for info in (adapter for adapters in real.listed.values() for adapter in adapters):
        assert f"{info.label} {figures.load(info)}" in real.reasons[chosen.name]
    assert real.choose() is chosen
    assert real.measured == ["vulkan", "cpu"]  # not again


@pytest.mark.usefixtures("software")
def test_where_there_is_one_candidate_nothing_is_measured():
    chooser = Chooser()
    assert chooser.choose().name == "cpu"
    assert chooser.measured == []
    assert chooser.reasons["cpu"].startswith("no hardware adapter was found (vulkan is software)")


@pytest.mark.parametrize("times", [None, 3, [1.0, 2.0], [1.0, 2.0, "3"], [1.0, 2.0, float("nan")], [1.0, 0.0, 1.0]])
def test_figures_that_are_none_are_not_used(times, tmp_path):
    info = AdapterInfo("vulkan", 0, "made up")
    figures.store(info, times)
    assert figures.load(info) is None


def test_another_driver_is_measured_anew():
    figures.store(AdapterInfo("vulkan", 0, "a card (driver 1)"), Figures(1.0, 1.0, 1.0))
    assert figures.load(AdapterInfo("vulkan", 0, "a card (driver 2)")) is None


def test_where_nothing_can_be_written_the_choice_is_made_all_the_same(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    caplog.set_level(logging.INFO, "optirs_web")
    figures.store(AdapterInfo("vulkan", 0, "made up"), Figures(1.0, 1.0, 1.0))
    assert "what was measured is used, but cannot be kept: " in caplog.text
    assert (tmp_path / "file").read_bytes() == b""


KINDS = {"metal": "integrated", "vulkan": "discrete", "dx12": "", "cpu": "cpu"}


@pytest.mark.parametrize(("power", "expected"), [("low", "metal"), ("high", "vulkan")])
def test_power_prefers_a_kind_without_a_measurement(power, expected):
    chooser = made_up(**KINDS)
    assert chooser.choose(power).name == expected
    assert f"power '{power}' prefers its kind, {KINDS[expected]}" in chooser.reasons[expected]


def test_of_several_of_the_kind_that_power_prefers_the_fastest_is_taken():
    chooser = made_up(metal="discrete", vulkan="integrated", dx12="discrete", cpu="cpu")
    keep(chooser, metal=2e-3, dx12=1e-3, cpu=1e-6)
    assert chooser.choose("high").name == "dx12"
    assert "power 'high' prefers its kind, discrete; it was the fastest" in chooser.reasons["dx12"]


def test_where_devices_are_as_fast_the_order_of_names_decides():
    chooser = made_up(**KINDS)
    keep(chooser, metal=1.3e-3, vulkan=1.06e-3, dx12=1e-3)
    assert chooser.choose().name == "vulkan"
    assert "vulkan 3.2 ms (copy 1.1, update 1.1, product 1.1), dx12 3 ms" in chooser.reasons["vulkan"]


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("auto", "fast"), {}, "power .* must be one of low, high, not 'fast'"),
        (("auto", None), {"OPTIRS_POWER": "medium"}, "one of low, high, not 'medium'"),
        (("auto", "low"), {"OPTIRS_AUTO_SOFTWARE": "yes"}, "OPTIRS_AUTO_SOFTWARE must be 0 or 1, not 'yes'"),
        (("cpu", "low"), {}, "'cpu' already names a device"),
    ],
)
def test_wrong_words_are_refused(arguments, environment, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    name, power = arguments
    with pytest.raises(ValueError, match=message):
        ow.device(name, power=power)


def test_power_is_a_wish_of_auto_alone_that_the_environment_may_express(monkeypatch):
    assert ow.device("auto", power="low").name == "cpu"
    monkeypatch.setenv("OPTIRS_POWER", "high")
    assert ow.device("auto") is ow.device("auto", power="high")
    assert asyncio.run(ow.device_async("auto", power="low")) is ow.device("auto", power="low")
    assert ow.device("cpu").name == "cpu"
    monkeypatch.setenv("OPTIRS_DEVICE", "cpu")
    assert ow.device(power="low").name == "cpu"


# What may be taken.


def test_a_device_that_does_not_open_is_passed_over_and_that_is_logged_once(caplog):
    caplog.set_level(logging.INFO, "optirs_web")
    chooser = made_up(**KINDS)
    keep(chooser, vulkan=1e-6)
    chooser.refused.add("vulkan")
    for _ in range(2):
        assert chooser.choose().name == "metal"
        open_devices.avoided.clear()
    assert "vulkan is avoided: it could not be opened (it refused)" in chooser.reasons["metal"]
    (record,) = [record for record in caplog.records if "vulkan is avoided" in record.message]
    assert record.levelname == "WARNING"
    assert record.message.startswith("'auto' takes metal: ")


@pytest.mark.usefixtures("software")
def test_optirs_require_forbids_falling_back_to_what_it_does_not_name(monkeypatch):
    monkeypatch.setenv("OPTIRS_REQUIRE", "torch, vulkan")
    with pytest.raises(DeviceNotAvailableError) as caught:
        Chooser({"vulkan": [AdapterInfo("vulkan", 0, "", available=False, reason="no driver")], **cpu()}).choose()
    for words in ("allows 'auto' only vulkan", "OPTIRS_REQUIRE=torch, vulkan", "falling back to cpu is not allowed"):
        assert words in str(caught.value)
    assert str(caught.value).endswith(": vulkan is unavailable (no driver)")
    with pytest.raises(DeviceNotAvailableError, match="vulkan is software, which 'auto' never selects; name it, as in"):
        Chooser().choose()
    chooser = made_up(**KINDS)
    keep(chooser, metal=1e-6)
    assert chooser.choose().name == "vulkan"
    chooser.refused.add("vulkan")
    with pytest.raises(DeviceNotAvailableError, match="vulkan: it could not be opened"):
        chooser.choose()


@pytest.mark.parametrize("said", ["", "torch,linux", "vulkan,cpu"])
def test_optirs_require_allows_what_it_names_and_everything_where_it_names_no_device(said, monkeypatch):
    monkeypatch.setenv("OPTIRS_REQUIRE", said)
    assert Chooser(cpu()).choose().name == "cpu"


def cpu():
    return {"cpu": [device for device in ow.devices() if device.name == "cpu"]}


# Devices that fail.


@pytest.fixture
def fail(device):
    """Has the device refuse a submit."""
    with device.record(fuses=False) as program:
        _ = ow.ones((64,), device=device).exp()
    launch = program.launches[-1]
    target = ow.zeros((64,), device=device)

    def fail():
        if device.name == "cpu":
            device.dispatch(launch.kernel, [View(target.view.buffer, 0, 16), target.view], (1, 1), launch.parameters)
        else:
            freed = device.allocate_zeroed(256)
            device.dispatch(launch.kernel, [View.whole(freed), target.view], (1, 1), launch.parameters)
            device.backend.free(freed.handle)
        with pytest.raises(LaunchError):
            device.synchronize()

    return fail


def test_a_device_on_which_submits_fail_in_a_row_is_avoided_until_it_is_asked_for(device, fail):
    for _ in range(2):
        fail()
        fail()
        assert (ow.ones((2,), device=device) + 1.0).tolist() == [2.0, 2.0]  # which ends the row
    assert device.name not in open_devices.avoided
    for _ in range(3):
        fail()
    assert open_devices.avoided[device.name] == "3 submits in a row failed on it"
    (info,) = [adapter for adapter in ow.devices() if adapter.label == device.name]
    assert info.available
    assert f"avoids it until you ask for '{device.name}'" in info.reason
    assert ow.device(device.name) is device
    assert device.name not in open_devices.avoided


def test_want_of_memory_is_no_failure(device, limited):
    limited(1 << 20)
    for _ in range(4):
        with pytest.raises(OutOfDeviceMemoryError):
            ow.zeros((1 << 20,), device=device)
    assert open_devices.avoided == {}


def test_the_only_device_that_may_be_taken_is_taken_again_though_it_failed():
    chooser = Chooser(cpu())
    open_devices.avoid("cpu", "it was lost")
    assert chooser.choose().name == "cpu"
    assert "cpu is retried, since there is no other: it was lost" in chooser.reasons["cpu"]


LOSING = """
import logging, os, sys
import optirs_web as ow
from optirs_web.runtime.choosing import figures
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.WARNING)
for one in ow.devices():
    if one.name in ("vulkan", "cpu"):
        figures.store(one, figures.Figures(*[1e-3 if one.name == "vulkan" else 1.0] * 3))

def make(device, **options):
    w = ow.Parameter([4.0, -2.0], device=device)
    optimizer = ow.optim.AdamW([w], lr=0.25)
    def train_step(x):
        optimizer.zero_grad()
        loss = (w * w * x).sum()
        loss.backward()
        optimizer.step()
        return loss
    return w, ow.compile(train_step, device=device, **options)

def train(step, lost_before=None, numbers=range(4)):
    for number in numbers:
        if number == lost_before:
            ow.device("vulkan").backend._device.destroy()
        step([1.0 + number, 1.0])

def reason():
    return [one.reason for one in ow.devices() if one.name == "vulkan"]

os.environ["OPTIRS_REQUIRE"] = "vulkan"
for options in ({"recover": "auto"}, {"recover": True}):
    w, step = make("vulkan", snapshot_every=1, **options)
    train(step, lost_before=2)
    print(w.device.name)
del os.environ["OPTIRS_REQUIRE"]

w, step = make(ow.device("auto"), recover="auto", snapshot_every=1)
before = ow.device("auto").name
train(step, lost_before=2)
print(before, w.device.name, ow.device("auto").name)
same, other_step = make(ow.device("cpu"))
train(other_step, numbers=[0, 2, 3])  # from the snapshot before the call that had not been followed by one
print(max(abs(a - b) for a, b in zip(w.tolist(), same.tolist())) < 1e-6)
print(reason())
print(ow.device("vulkan").name, reason())

w, step = make("vulkan")
ow.snapshot("vulkan")
try:
    train(step, lost_before=0)
except ow.errors.DeviceLostError:
    print([one.name for one in ow.recover("auto")], w.device.name, w.tolist(), ow.recover("auto"))
"""


def test_work_moves_from_a_lost_device_to_the_next_where_that_is_allowed(open_device, tmp_path):
    open_device("vulkan")
    inputs = {"XDG_CACHE_HOME": tmp_path, "MESA_SHADER_CACHE_DIR": MESA, "OPTIRS_AUTO_SOFTWARE": 1}
    inputs["OCL_ICD_VENDORS"] = tmp_path  # the next is the processor
    lines = run_python(LOSING, **inputs, OPTIRS_REQUIRE=None, OPTIRS_POWER=None, OPTIRS_DEVICE=None)
    again, moves = (row for row in lines if row.startswith("WARNING"))  # once, though both happen twice
    assert again.endswith("; vulkan is retried, since there is no other: it was lost")
    assert moves.startswith("WARNING 'auto' takes cpu: ")
    assert moves.endswith("; vulkan is avoided: it was lost")
    assert [row for row in lines if row not in (again, moves)] == [
        "vulkan",  # OPTIRS_REQUIRE allows no other
        "vulkan",  # nobody said that it may move
        "vulkan cpu cpu",
        "True",
        "[\"it was lost, so 'auto' avoids it until you ask for 'vulkan'\"]",
        "vulkan ['']",
        "['cpu'] cpu [4.0, -2.0] []",
    ]


@pytest.mark.parametrize("options", [{"power": "low"}, {"through": "dawn"}])
def test_a_device_that_is_open_takes_no_options(options):
    opened = ow.device("cpu")
    assert ow.device(opened) is opened
    with pytest.raises(ValueError, match="power and through are for devices that are yet to be opened, unlike cpu"):
        ow.device(opened, **options)
