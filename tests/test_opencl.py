"""The device `opencl`: messages where OpenCL is missing, the cache on disk, and errors of the driver."""

import asyncio
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web.errors import DeviceLostError, DeviceNotAvailableError, LaunchError, OptirsError, ShaderError
from optirs_web.native_backends.opencl.declarations import declared
from optirs_web.runtime.backend import AllocationFailed
from optirs_web.runtime.timing import GPU_TIMESTAMPS
from optirs_web.wgsl.c_dialects import OPENCL

POCL_CACHE = os.environ.get("POCL_CACHE_DIR") or os.path.expanduser("~/.cache/pocl/kcache")

ASK = """
import optirs_web as ow
try:
    ow.device("opencl")
except ow.errors.DeviceNotAvailableError as error:
    print(error)
"""


def test_without_pyopencl_it_says_what_to_install():
    lines = run_python(f"import sys; sys.modules['pyopencl'] = None{ASK}")
    why = "the Python package pyopencl is not installed: pip install 'pyopencl>=2025.1'"
    assert lines == [f"device 'opencl' is not available: {why}"]


def test_a_package_that_cannot_be_loaded_is_no_missing_package(tmp_path):
    """As where it was built for a loader that has gone."""
    (tmp_path / "pyopencl").mkdir()
    (tmp_path / "pyopencl" / "__init__.py").write_text("from . import _cl")
    (tmp_path / "pyopencl" / "_cl.so").write_bytes(b"no library")
    lines = run_python(ASK, PYTHONPATH=tmp_path)
    assert "is damaged or the wrong version" in lines[0]


def test_without_a_driver_it_says_what_to_install(opencl, tmp_path):
    lines = run_python(ASK, OCL_ICD_VENDORS=tmp_path)
    said = "device 'opencl' is not available: no OpenCL driver found, with OCL_ICD_VENDORS="
    assert lines[0].startswith(f"{said}{tmp_path}; install the graphics card's")
    assert "apt install pocl-opencl-icd" in lines[0]


def test_a_driver_that_does_not_load_is_no_driver(opencl, tmp_path):
    (tmp_path / "gone.icd").write_text("libgone.so\n")
    lines = run_python(ASK, OCL_ICD_VENDORS=tmp_path)
    assert "no OpenCL driver found" in lines[0]


def test_a_driver_without_a_device_is_named(opencl, tmp_path):
    """As PoCL where it cannot write what it compiles."""
    (tmp_path / "file").touch()
    lines = run_python(ASK, POCL_CACHE_DIR=tmp_path / "file" / "nowhere")
    if "Portable Computing Language" in opencl.info.description:
        assert "the installed OpenCL drivers (Portable Computing Language" in lines[0]
        assert "have no device; install the graphics card's" in lines[0]
    else:
        assert lines == []


def test_a_number_beyond_the_last_device_is_refused(opencl):
    with pytest.raises(DeviceNotAvailableError, match=r"there are \d+ of that kind"):
        ow.device("opencl:99")


RUN = """
import optirs_web as ow
ow.device("opencl").backend._programs.keeps = True  # PoCL's are not kept
print((ow.ones((4,), device="opencl") + 1.0).tolist())
"""


def test_what_the_driver_made_is_kept_and_made_again_where_it_is_damaged(opencl, tmp_path):
    folder = tmp_path / "optirs-web" / "opencl"
    environment = {"XDG_CACHE_HOME": tmp_path, "POCL_CACHE_DIR": POCL_CACHE}
    assert run_python(RUN, **environment) == ["[2.0, 2.0, 2.0, 2.0]"]
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert times
    assert run_python(RUN, **environment) == ["[2.0, 2.0, 2.0, 2.0]"]
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    kept = {path: path.stat().st_size for path in folder.iterdir()}
    for path, size in kept.items():
        os.truncate(path, size // 2)  # which PoCL would read beyond
    assert run_python(RUN, **environment) == ["[2.0, 2.0, 2.0, 2.0]"]
    assert all(path.stat().st_size > size // 2 for path, size in kept.items())


def test_without_a_folder_that_can_be_written_it_works(opencl, tmp_path):
    (tmp_path / "optirs-web").touch()
    environment = {"XDG_CACHE_HOME": tmp_path, "POCL_CACHE_DIR": POCL_CACHE}
    assert run_python(RUN, **environment) == ["[2.0, 2.0, 2.0, 2.0]"]


def test_texts_declare_what_they_call_so_that_pocl_reads_no_header(opencl):
    rows = [template for template, _ in OPENCL.rows.values()]
    texts = [*rows, *OPENCL.helpers.values(), *OPENCL.builtin_values.values()]
    called = {word for text in texts for word in re.findall(r"\b[a-z]\w*(?=\()", text)} | {*OPENCL.atomics.values()}
    macros = {"as_float", "as_int", "as_uint"}
    assert {name for name in called - macros if f" {name}(" not in declared(f"{name}()").splitlines()[0]} == set()
    assert (ow.ones((4,), device=opencl) + 1.0).tolist() == [2.0] * 4
    programs = opencl.backend._programs
    assert programs.declares == ("Portable Computing Language" in opencl.info.description)
    text = "__kernel void main_(__global float *x) { *x = cbrt(*x); }"  # which none of ours calls
    if programs.declares:
        with pytest.raises(ShaderError, match="refused by the device's compiler"):
            programs._compiled("broken", f"{text}}}")
        assert programs.declares
        programs._compiled("other", text)
        assert not programs.declares
        programs.declares = True


def test_workgroups_that_run_at_the_same_time_have_memory_of_their_own(opencl):
    x = np.random.default_rng(0).standard_normal((80_000, 16), np.float32)
    powers = np.exp(x)
    actual = ow.tensor(x, device=opencl).softmax(axis=-1).numpy()
    np.testing.assert_allclose(actual, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)


def test_a_replayed_step_sets_no_arguments_and_builds_nothing(opencl):
    w = ow.Parameter(np.ones(1000, np.float32), device=opencl)
    optimizer = ow.optim.AdamW([w])
    w.grad = ow.ones(w.shape, device=opencl)
    step = ow.compile(lambda: optimizer.step(), device=opencl)
    step()
    before = opencl.stats.copy()
    step()
    cost = opencl.stats - before
    assert (cost.dispatches, cost.submits, cost.bind_groups, cost.pipelines, cost.bytes_down) == (2, 1, 0, 0, 0)


def test_a_profile_goes_by_the_devices_clock(opencl):
    x = ow.ones((1 << 16,), device=opencl)
    with ow.profile(opencl) as profile:
        (x + 1.0).tolist()
    assert profile.clock == GPU_TIMESTAMPS


def test_memory_that_a_step_has_bound_and_that_is_freed_is_an_error_of_ours(opencl):
    w = ow.Parameter([1.0, 2.0], device=opencl)
    step = ow.compile(lambda x: (w * x).sum(), device=opencl)
    assert step([1.0, 1.0]).item() == 3.0
    w.view.buffer.release()
    opencl.memory_stats()  # takes it back
    opencl.trim()
    with pytest.raises(LaunchError, match="refers to freed memory"):
        step([1.0, 1.0])
    for use in (w.tolist, lambda: asyncio.run(_awaited(w))):
        with pytest.raises(OptirsError, match=r"freed memory .*is used"):
            use()
    assert (ow.ones((3,), device=opencl) + 1.0).tolist() == [2.0] * 3


async def _awaited(tensor):
    return await tensor.tolist_async()


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        ("MEM_OBJECT_ALLOCATION_FAILURE", AllocationFailed),
        ("OUT_OF_HOST_MEMORY", AllocationFailed),
        ("DEVICE_NOT_AVAILABLE", DeviceLostError),
        ("INVALID_COMMAND_QUEUE", DeviceLostError),
        ("OUT_OF_RESOURCES", OptirsError),
    ],
)
def test_a_drivers_error_is_one_of_ours(opencl, code, ours):
    import pyopencl as cl

    from optirs_web.native_backends.opencl.backend import OpenclBackend, _usable

    backend = OpenclBackend(_usable()[0], opencl.info)
    record = cl._cl._ErrorRecord(msg="", code=getattr(cl.status_code, code), routine="clFinish")
    with pytest.raises(ours), backend.errors():
        raise cl.Error(record)
    assert backend.lost is (ours is DeviceLostError)


@pytest.mark.parametrize(
    ("version", "lacks", "most", "has_them"),
    [
        ("OpenCL 3.0 driver", "", 8, True),
        ("OpenCL 3.0 driver", "", 0, False),  # as it says itself, whatever extends them
        ("OpenCL 3.0 driver", "cl_khr_subgroup_shuffle", 8, False),
        ("OpenCL 2.1 driver", "", 8, False),
    ],
)
def test_subgroups_are_there_where_a_device_has_them_and_all_that_extends_them(opencl, version, lacks, most, has_them):
    from optirs_web.native_backends.opencl.backend import features_of

    names = ("ballot", "non_uniform_arithmetic", "shuffle", "shuffle_relative")
    extensions = {f"cl_khr_subgroup_{name}" for name in names} - {lacks}
    # PoCL 3.1 has none of them.
    device = SimpleNamespace(version=version, extensions=" ".join(extensions), max_num_sub_groups=most)
    assert features_of(device) == ({"subgroups"} if has_them else set())
