"""CUDA without a GPU of NVIDIA: `driver.cpp` in the place of NVIDIA's driver. What it is and is not stands there.

NVIDIA's compiler and the package cuda.bindings are the real ones. What the compiler makes of a text cannot be run here;
so the text is noted, by the image's length and checksum, and the driver runs that, built by g++.
"""

import ctypes
import functools
import os
import shutil
import subprocess
import zlib
from contextlib import contextmanager
from pathlib import Path

from requirements import missing, required

import optirs_web as ow
from optirs_web.errors import DeviceNotAvailableError
from optirs_web.runtime import nvrtc, open_devices

__all__ = ["Driver", "amounts", "cublas", "install", "opened", "shown"]

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / "build" / "software_cuda"


KINDS = ("allocations", "contexts", "events", "executables", "graphs", "host allocations", "modules", "streams")


class Driver:
    """The library, with what tests ask of it and tell it."""

    def __init__(self, library):
        self._library = library
        library.software_cuda_count.restype = ctypes.c_int64
        library.software_cuda_set.argtypes = ctypes.c_char_p, ctypes.c_int64

    def count(self, name):
        """How often a function was called; or how many there are of "allocations", "events", "executables", ..."""
        return self._library.software_cuda_count(name.encode())

    def set(self, **settings):
        """Set properties of the emulated driver; `driver.cpp` has their names."""
        for name, value in settings.items():
            self._library.software_cuda_set(name.encode(), value)

    def heal(self):
        """As in a process that was started again: an error of a kernel is forgotten, and what was enqueued."""
        self._library.software_cuda_heal()


def amounts(driver):
    """How many there are of each kind of what a device takes, which one that is closed has given back."""
    return {kind: driver.count(kind) for kind in KINDS}


@contextmanager
def shown(label="cuda"):
    """Within it the driver in software has a GPU, for a device to be opened; outside it is as if there were none.

    Where there is NVIDIA's own driver, that is taken, and this does nothing; nor does it for a device of another name.
    """
    driver = install() if label.startswith("cuda") else None
    if driver is None:
        yield None
        return
    driver.set(devices=1)
    try:
        yield driver
    finally:
        driver.set(devices=0)


@contextmanager
def opened(label="cuda:1"):
    """A device of one test's own, which is closed in the end, unless it is lost."""
    device = ow.device(label)
    try:
        yield device
    finally:
        if not device.lost:
            ow.close_device(device)
        open_devices.avoided.clear()


@functools.cache
def install():
    """Have this process find the driver in software, unless there is NVIDIA's: then None.

    A skip or a failure where g++ or NVIDIA's compiler is missing.
    """
    try:
        ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
        return None
    except OSError:
        pass
    try:
        nvrtc.version()
    except DeviceNotAvailableError as error:
        _missing("nvrtc", str(error))
    library = ctypes.CDLL(str(built()), ctypes.RTLD_GLOBAL)  # found from now on by its own name, libcuda.so.1
    os.environ["SOFTWARE_CUDA_FOLDER"] = str(FOLDER)
    os.environ["SOFTWARE_CUDA_COMPILE"] = str(HERE / "compile.sh")
    compile_cuda = nvrtc.compile_cuda

    def noting(text, arch="sm_80", kind="ptx", options=()):
        image = compile_cuda(text, arch, kind, options)
        note(image, text, arch, kind)
        return image

    nvrtc.compile_cuda = noting
    return Driver(library)


@functools.cache
def cublas():
    """cuBLAS in software, for products of devices in software."""
    install()
    library = ctypes.CDLL(str(built("cublas", "libcublas.software.so")))
    library.software_cublas_calls.restype = library.software_cublas_handles.restype = ctypes.c_int64
    return library


def _missing(name, reason):
    """Who requires the device requires what it takes."""
    missing("cuda" if "cuda" in required() else name, reason)


def built(name="driver", soname="libcuda.so.1"):
    """The library of a source in this folder, built anew where that has changed."""
    source, library = HERE / f"{name}.cpp", FOLDER / soname
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("g++") or _missing("g++", "g++ is not installed")
        FOLDER.mkdir(parents=True, exist_ok=True)
        partial = f"{library}.{os.getpid()}"
        options = ["-std=c++17", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{soname}"]
        subprocess.run([compiler, *options, str(source), "-o", partial, "-ldl"], check=True)
        os.replace(partial, library)
    return library


ENTRY = """
extern "C" void *pack(void **from) {{ return new auto(emulation::packed({kernel}, from)); }}
typedef decltype(emulation::packed({kernel}, (void **)nullptr)) Arguments;
extern "C" void drop(void *packed) {{ delete (Arguments *)packed; }}
extern "C" void run(void *packed, const unsigned *sizes) {{
    emulation::launch({kernel}, (Arguments *)packed, sizes, {has_barriers});
}}
"""


def note(image, text, arch, kind):
    """Have the driver know an image by the text that it was compiled from."""
    image = image.rstrip(b"\0") if kind == "ptx" else image
    path = FOLDER / f"{len(image)}-{zlib.crc32(image):08x}"
    if not path.with_suffix(".arch").exists():
        has_barriers = "__syncthreads" in text or "_sync(" in text
        entry = ENTRY.format(kernel="main_", has_barriers="true" if has_barriers else "false")
        replaced(path.with_suffix(".cu"), text + entry)
        replaced(path.with_suffix(".arch"), f"{arch.removeprefix('sm_')} {kind}\n")


def replaced(path, content):
    partial = path.with_suffix(f"{path.suffix}.{os.getpid()}")
    partial.write_text(content)
    os.replace(partial, path)
