"""Dawn, which opens `vulkan`, `metal` and `dx12` too: names, errors where it is missing, its WGSL, its timestamps."""

import numpy as np
import pytest
from dawn_device import with_software_driver
from processes import run_python

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError, LaunchError, OptirsError
from optirs_web.runtime.kernels import cooperative

OPEN = """
import optirs_web as ow
try:
    print(ow.device("vulkan", through="dawn").name)
except ow.errors.DeviceNotAvailableError as error:
    print(error)
"""


def test_without_wgpudawn_it_says_what_to_install():
    lines = run_python(f"import sys; sys.modules['wgpudawn'] = None{OPEN}")
    why = "the Python package wgpudawn is not installed: pip install 'wgpudawn>=0.32,<0.33'"
    assert lines == [f"device 'vulkan-dawn' is not available: {why}"]


@pytest.mark.parametrize(
    ("name", "through", "message"),
    [
        ("vulkan", "tint", "through must be one of dawn, not 'tint'"),
        ("cpu", "dawn", "dawn opens vulkan, metal, dx12, not 'cpu'"),
        ("gl:0", "dawn", "dawn opens vulkan, metal, dx12, not 'gl:0'"),
        (None, "dawn", "dawn opens vulkan, metal, dx12, not None"),
    ],
)
def test_what_dawn_does_not_open_is_refused(name, through, message):
    with pytest.raises(ValueError, match=message):
        ow.device(name, through=through)


def test_power_is_for_auto_only():
    with pytest.raises(ValueError, match="power is for 'auto' only"):
        ow.device("vulkan", through="dawn", power="low")


@pytest.mark.needs("dawn")
def test_a_driver_that_cannot_be_used_is_said(open_device):
    actual = run_python(OPEN, VK_DRIVER_FILES="/nonexistent.json", VK_ICD_FILENAMES="/nonexistent.json")[-1]
    assert "no vulkan-dawn adapter found: VK_DRIVER_FILES=/nonexistent.json hides all drivers" in actual
    usual = open_device("vulkan").info.description
    refused = f"no vulkan-dawn adapter found: Dawn refuses {usual}, and has written to the terminal what it misses"
    actual = run_python(OPEN)[-1]
    assert actual == "vulkan-dawn" or refused in actual  # as it refuses Mesa 22, but not 25


def test_a_device_through_dawn_is_one_of_its_own(dawn, open_device):
    vulkan = open_device("vulkan")
    assert dawn is not vulkan
    assert dawn.name == "vulkan-dawn"
    assert ow.device("vulkan-dawn:0") is ow.device("vulkan:0", through="dawn") is dawn
    assert "vulkan-dawn" not in [device.name for device in ow.devices()]  # each adapter is listed once
    x = np.random.default_rng(0).normal(size=(33, 20)).astype(np.float32)
    a, b = (ow.tensor(x, device=values) for values in (dawn, vulkan))
    np.testing.assert_allclose((a @ a.T).numpy(), (b @ b.T).numpy(), rtol=1e-5, atol=1e-5)
    assert a.to(vulkan).device is vulkan


def test_the_text_enables_what_dawn_wants_enabled(dawn):
    assert dawn.capabilities.quads  # a product is by quads, whose operations need the extension
    assert "enable subgroups;" in cooperative("matmul", QUADS=True).wgsl("tint")
    assert "enable" not in cooperative("matmul", QUADS=True).wgsl("naga")


def test_errors_are_ours(dawn):
    backend = dawn.backend
    freed = backend.allocate(64)
    backend.free(freed)
    with pytest.raises(OptirsError, match="freed memory of device 'vulkan-dawn'"):
        backend.write(freed, 0, memoryview(bytes(4)))
    kernel, buffer = cooperative("quad_lanes"), backend.allocate(4)
    with pytest.raises(LaunchError, match="failed on device 'vulkan-dawn'"):
        backend.submit([backend.bind(kernel, [(buffer, 0, 4)], b"", (1 << 17, 1, 1))])
    backend.free(buffer)


def test_timestamps_are_not_rounded(dawn):
    with ow.profile(dawn) as profile:
        ow.ones((64, 64), device=dawn).sum()
    durations = [kernel.end - kernel.start for kernel in profile.kernels]
    assert profile.clock == "gpu timestamps"
    assert min(durations) > 0
    assert any(round(1e9 * duration) % 1024 for duration in durations)  # what a page is told is rounded to 65,536 ns


@pytest.mark.needs("dawn")
def test_a_device_that_was_closed_is_opened_again():
    lines = run_python(
        """
        import optirs_web as ow
        first = ow.device("vulkan", through="dawn")
        ow.close_device("vulkan-dawn")
        second = ow.device("vulkan", through="dawn")
        print(first.closed, second is first, ow.ones((3,), device=second).sum().item())
        """,
        **with_software_driver(),
    )
    assert lines == ["True False 3.0"]


def test_another_version_is_refused(monkeypatch, dawn):
    import wgpudawn

    monkeypatch.setattr(wgpudawn, "version_info", (0, 33, 0, 0))
    monkeypatch.setattr(wgpudawn, "__version__", "0.33.0.0")
    with pytest.raises(
        DeviceNotAvailableError, match=r"wgpudawn is of version 0\.33\.0\.0, .*'wgpudawn>=0\.32,<0\.33'"
    ):
        ow.device("vulkan:7", through="dawn")
