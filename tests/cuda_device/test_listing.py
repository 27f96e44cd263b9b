"""The list of NVIDIA's GPUs: their facts, and the reason where there is none."""

import sys

import pytest
from processes import run_python
from requirements import missing

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError
from optirs_web.native_backends.cuda import backend as cuda_listing


def reason():
    (result,) = cuda_listing.list_adapters("cuda")
    assert not result.available
    return result.reason


def test_a_gpu_is_told_with_its_name_memory_and_place(driver):
    driver.set(devices=2)
    first, second = cuda_listing.list_adapters("cuda")
    assert first.description == "CUDA in software (compute capability 9.0, driver of CUDA 13.0)"
    assert (first.label, second.label, first.bus, second.bus) == ("cuda", "cuda:1", "0000:3a:00.0", "0000:3b:00.0")
    assert (first.kind, first.memory, first.features) == ("discrete", 2 << 30, {"shader-f16", "subgroups"})


def test_without_a_driver_it_says_what_to_install():
    lines = run_python(
        """
        import ctypes
        import optirs_web as ow
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            print(next(one.reason for one in ow.devices() if one.name == "cuda"))
        """
    )
    if not lines:
        missing("software-cuda", "NVIDIA's own driver is there, and what is said without it is not")
    assert lines[0].startswith("libcuda.so.1 (NVIDIA's driver) cannot be loaded: if there is an NVIDIA GPU, ")
    assert "install NVIDIA's driver, version 580 or newer (nvidia.com/drivers; " in lines[0]
    assert lines[0].endswith("with `docker run --gpus all` (NVIDIA Container Toolkit)")


def test_a_driver_that_only_the_container_lacks_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda_listing, "_DRIVER", "libabsent.so")
    monkeypatch.setattr(cuda_listing, "_CARDS", str(tmp_path))
    assert reason().startswith("libabsent.so (NVIDIA's driver) cannot be loaded: the machine has the driver, but this")


@pytest.mark.usefixtures("driver")
def test_without_its_packages_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cuda_listing.nvrtc, "version", cuda_listing.nvrtc.version.__wrapped__)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    monkeypatch.delattr("cuda.bindings.nvrtc")
    assert reason().startswith("NVIDIA's compiler is not installed: pip install 'optirs-web[cuda]'")
    monkeypatch.delitem(sys.modules, "optirs_web.native_backends.cuda.driver")
    monkeypatch.delattr("optirs_web.native_backends.cuda.driver")
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert reason().startswith("NVIDIA's package cuda-bindings is not installed: pip install 'optirs-web[cuda]'")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": 0}, "finds no NVIDIA GPU: see nvidia-smi"),
        ({"init": 100}, "finds no NVIDIA GPU: see nvidia-smi"),
        ({"init": 3}, "initialization error .* forked from one that had looked for GPUs: start it with 'spawn'"),
        (
            {"init": 34},
            r"CUDA driver is a stub library \(CUDA_ERROR_STUB_LIBRARY\): .* remove the CUDA toolkit's folder",
        ),
        ({"init": 803}, "have different versions, as after an update: restart the machine"),
        ({"init": 999}, r"does not start: unknown error \(CUDA_ERROR_UNKNOWN\): .* sudo modprobe nvidia_uvm"),
        (
            {"version": 12040},
            "supports CUDA 12.4, but the installed compiler needs 13.0 or newer: install NVIDIA's driver, ver",
        ),
        ({"capability": 61}, "has compute capability 6.1; the compiler .* and newer: use vulkan or opencl"),
        ({"prohibited": 1}, "CUDA in software is in prohibited compute mode: sudo nvidia-smi -c 0"),
    ],
)
def test_why_there_is_none_is_said_with_what_to_do(driver, monkeypatch, settings, message):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver.set(**settings)
    with pytest.raises(DeviceNotAvailableError, match=f"^device 'cuda:1' is not available: .*{message}"):
        ow.device("cuda:1")


def test_a_variable_that_hides_gpus_is_named(driver, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    driver.set(devices=0)
    assert reason() == ("NVIDIA's driver is installed, but CUDA_VISIBLE_DEVICES=7 hides every GPU: unset or correct it")


def test_a_function_that_an_old_driver_lacks_is_no_crash(driver, monkeypatch):
    from optirs_web.native_backends.cuda import driver as cuda_driver

    def lacking():
        raise RuntimeError("function cuDeviceGetCount is not found")

    monkeypatch.setattr(cuda_driver, "devices", lacking)
    assert reason().startswith("NVIDIA's driver is too old for cuda-bindings (function cuDeviceGetCount is not found)")
