"""Messages where a driver or a package is missing, hidden, damaged or of a wrong version: they say what to do."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from processes import run_python
from requirements import missing

import optirs_web as ow
from optirs_web.runtime.choosing import packages

ROOT = Path(__file__).parent.parent

REASONS = """
import optirs_web as ow
for one in ow.devices():
    print(f"{one.name}: {one.reason}")
try:
    print("auto:", ow.device("auto").name, ow.device("auto").why)
except ow.errors.DeviceNotAvailableError as error:
    print("auto:", error)
"""


def reasons(before="", **environment):
    """By name, why it is not there, in a process of its own; and what "auto" says."""
    inputs = {"OPTIRS_DEVICE": None, "OPTIRS_REQUIRE": None, **environment}
    return dict(
        line.split(": ", 1) if ": " in line else (line[:-1], "") for line in run_python(before + REASONS, **inputs)
    )


@pytest.fixture
def on_linux():
    if sys.platform != "linux":
        missing("linux", "drivers are hidden by Linux's variables")


@pytest.mark.usefixtures("on_linux")
def test_drivers_that_a_variable_hides_are_found_by_its_name(open_device):
    open_device("vulkan")  # elsewhere there is no driver to hide
    none = "/nonexistent.json"
    actual = reasons(VK_DRIVER_FILES=none, VK_ICD_FILENAMES=none, __EGL_VENDOR_LIBRARY_FILENAMES=none)
    assert actual["vulkan"] == (
        "no vulkan adapter found: VK_DRIVER_FILES=/nonexistent.json hides all drivers but those that it names, and "
        "/nonexistent.json does not exist: unset VK_DRIVER_FILES; or install the graphics card's Vulkan driver, or a "
        "software one (Debian: apt install mesa-vulkan-drivers)"
    )
    assert "__EGL_VENDOR_LIBRARY_FILENAMES=/nonexistent.json hides all drivers" in actual["gl"]
    assert "unset __EGL_VENDOR_LIBRARY_FILENAMES; or install an OpenGL driver (Debian: apt install" in actual["gl"]
    assert actual["metal"] == "no metal adapter found: Metal needs macOS; use vulkan"
    assert actual["dx12"] == "no dx12 adapter found: DX12 needs Windows 10 or later; use vulkan"
    assert actual["webgpu"].startswith("it runs in a browser, inside Pyodide; natively use vulkan")
    assert actual["auto"].startswith("cpu no hardware adapter was found (no metal, no cuda, no vulkan, no dx12")


@pytest.mark.usefixtures("on_linux")
def test_libraries_that_cannot_be_loaded_are_named_with_their_packages(open_device, tmp_path):
    open_device("vulkan")
    for name in ("libvulkan.so.1", "libEGL.so.1", "libEGL.so"):
        (tmp_path / name).touch()
    actual = reasons(LD_LIBRARY_PATH=tmp_path)
    assert "the Vulkan loader, libvulkan.so.1, cannot be loaded (Debian: apt install libvulkan1" in actual["vulkan"]
    assert "and install the graphics card's Vulkan driver, or a software one" in actual["vulkan"]
    assert "libEGL.so.1 cannot be loaded; install an OpenGL driver (Debian: apt install" in actual["gl"]


@pytest.mark.usefixtures("on_linux")
def test_a_driver_without_a_gpu_is_named_with_what_the_process_sees(open_device, tmp_path):
    open_device("vulkan")
    actual = reasons(VK_DRIVER_FILES=tmp_path / "none.json", before=WITH_A_DRIVER)
    assert "none of the installed Vulkan drivers (" in actual["vulkan"]
    assert "lvp_icd" in actual["vulkan"] or ".json" in actual["vulkan"]
    assert "docker run --gpus all" in actual["vulkan"] or "/dev/" in actual["vulkan"]


# The variable hides the drivers from wgpu, which looks first; then it is as if it had not been set.
WITH_A_DRIVER = """
import os
import optirs_web.native_backends.wgpu.backend as wgpu
wgpu.list_adapters("vulkan")
del os.environ["VK_DRIVER_FILES"]
os.environ.pop("VK_ICD_FILENAMES", None)
"""


LOADED = """
with open("/proc/self/maps") as file:
    print("a driver is loaded:", "libvulkan" in file.read())
"""


@pytest.mark.usefixtures("on_linux")
@pytest.mark.parametrize(("imports", "before"), [("import torch", ["a driver is loaded: False"]), ("", [])])
def test_triton_of_torch_is_loaded_before_a_driver(open_device, tmp_path, imports, before):
    open_device("vulkan")
    (tmp_path / "triton.py").write_text(f"{LOADED}\nraise ImportError('torch goes on without it')", "utf-8")
    (tmp_path / "torch.py").touch()  # what is installed as torch may be without Triton
    program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{imports}\nimport optirs_web as ow\n"
    actual = run_python(f"{program}ow.device('vulkan')\n{LOADED}")
    assert actual == [*before, "a driver is loaded: True"]


def test_without_numpy_and_wgpu_each_device_says_what_to_install():
    actual = reasons("import sys\nsys.modules['numpy'] = sys.modules['wgpu'] = None\n")
    numpy, wgpu = (f"the Python package {name} is not installed: pip install" for name in ("numpy", "wgpu"))
    assert actual["cpu"] == f"{numpy} 'numpy>=2'"
    for name in ("vulkan", "metal", "dx12", "gl"):
        assert actual[name] == f"{wgpu} 'wgpu>=0.32,<0.33'"
    assert actual["auto"].startswith(f"no device is available: cpu: {actual['cpu']}; ")
    assert f"vulkan: {actual['vulkan']}" in actual["auto"]


def test_a_damaged_package_is_an_error_of_one_device_and_says_how_to_mend_it(tmp_path):
    for name, content in {"wgpu": "", "numpy": "raise ImportError('no C extensions:\\n  see the manual')"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(content)
    actual = reasons(PYTHONPATH=tmp_path)
    assert actual["cpu"] == "a Python package that it needs cannot be imported: no C extensions: see the manual"
    assert "wgpu is damaged or the wrong version (cannot import name" in actual["vulkan"]
    assert actual["vulkan"].endswith("pip install 'wgpu>=0.32,<0.33'")


def test_versions_that_do_not_serve_are_told_apart_from_what_is_missing(monkeypatch, open_device):
    open_device("vulkan")
    import wgpu

    monkeypatch.setattr(np, "__version__", "1.26.4")
    monkeypatch.setattr(wgpu, "__version__", "0.29.0")
    monkeypatch.setattr(wgpu, "version_info", (0, 29, 0))
    actual = {device.name: device.reason for device in ow.devices()}
    does_not_serve = "the Python package {} is of version {}, which is not supported: pip install '{}'"
    assert actual["cpu"] == does_not_serve.format("numpy", "1.26.4", "numpy>=2")
    for name in ("vulkan", "gl"):
        assert actual[name] == does_not_serve.format("wgpu", "0.29.0", "wgpu>=0.32,<0.33")


def test_what_is_to_be_installed_is_what_the_package_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected = {one.partition(";")[0] for one in project["dependencies"]}
    assert set(packages.REQUIREMENTS.values()) >= expected
    for name in ("numpy", "wgpu"):
        assert packages.wrong_version(name, sys.modules[name].__version__) == ""
