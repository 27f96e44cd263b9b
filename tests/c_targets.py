"""Runs printed C: OpenCL on its first device, CUDA by an emulation of it on the CPU; and WGSL on wgpu, to compare.

A job is a checked module, an array for each storage binding, the bytes of the uniform variable, and the workgroups. The
arrays come back as the kernel leaves them; those that were given stay as they were.
"""

import ctypes
import functools
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from requirements import missing

from optirs_web.wgsl import check, parse, print_wgsl
from optirs_web.wgsl.print_c import COMPILER_OPTIONS, KERNEL, interface_of, print_c

HEADER = Path(__file__).parent / "wgsl" / "cuda_emulation.h"


class Job(NamedTuple):
    """A module with its arrays, the bytes of its uniform variable, and the number of workgroups."""

    module: object
    arrays: dict
    uniform: bytes = b""
    groups: tuple = (1, 1, 1)

    @classmethod
    def of(cls, text, arrays, uniform=b"", groups=(1, 1, 1)):
        """A job of WGSL as text."""
        module = parse(text, "job.wgsl")
        check(module)
        return cls(module, arrays, uniform, groups)

    def copies(self):
        """Return copies of the arrays by name."""
        return {name: array.copy() for name, array in self.arrays.items()}

    def arguments(self, pointers):
        """The values of the kernel's arguments, a pointer's from `pointers`."""
        for argument in interface_of(self.module).arguments:
            if argument.kind == "buffer":
                yield pointers[argument.name]
            else:
                yield (
                    self.uniform
                    if argument.kind == "uniform"
                    else np.uint32(argument.elements(self.arrays[argument.name].nbytes))
                )


@functools.cache
def _opencl():
    try:
        import pyopencl as cl

        device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    except (ImportError, StopIteration, RuntimeError) as error:
        return missing("opencl", repr(error))
    context = cl.Context([device])
    return cl, context, cl.CommandQueue(context)


def on_opencl(jobs, dialect="opencl"):
    """The arrays after each job."""
    return [_run_opencl(job, dialect) for job in jobs]


def on_opencl_with_subgroups(jobs):
    """Run jobs by OpenCL with subgroups of several invocations; skip if the driver has no f16 or no subgroups."""
    _, context, _ = _opencl()
    from optirs_web.native_backends.opencl.backend import features_of

    features = features_of(context.devices[0])
    if not features >= {"shader-f16", "subgroups"}:
        missing("opencl-subgroups", "the OpenCL driver has no f16, or no subgroups")
    return on_opencl(jobs, "opencl-subgroups")


def _run_opencl(job, dialect):
    cl, context, queue = _opencl()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {name: cl.Buffer(context, flags, hostbuf=array) for name, array in job.arrays.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)  # some compilers tell what they have made
        program = cl.Program(context, print_c(job.module, dialect)).build([*COMPILER_OPTIONS[dialect], "-w"])
    kernel = cl.Kernel(program, KERNEL)
    kernel.set_args(*job.arguments(buffers))
    size = interface_of(job.module).workgroup_size
    cl.enqueue_nd_range_kernel(queue, kernel, [n * s for n, s in zip(job.groups, size, strict=True)], size)
    results = job.copies()
    for name, array in results.items():
        cl.enqueue_copy(queue, array, buffers[name])
    return results


def on_emulated_cuda(jobs):
    """The arrays after each job; all are compiled at once."""
    parts = [f'#include "{HEADER}"\n']
    for number, job in enumerate(jobs):
        text = print_c(job.module, "cuda")
        parts.append(
            f"#define {KERNEL} kernel_{number}\nnamespace job_{number} {{\n{text}}}\n#undef {KERNEL}\n"
            f'extern "C" void launch_{number}(void **arguments, const unsigned *sizes) {{\n'
            f"    emulation::launch(job_{number}::kernel_{number}, arguments, sizes);\n}}\n"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "jobs.cpp"), Path(folder, "jobs.so")
        source.write_text("".join(parts))
        compiler = shutil.which("g++") or missing("g++", "g++ is not installed")
        options = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w"]
        subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
    return [_launch(getattr(loaded, f"launch_{number}"), job) for number, job in enumerate(jobs)]


def _launch(function, job):
    results = job.copies()
    pointers = {name: ctypes.c_void_p(array.ctypes.data) for name, array in results.items()}
    values = []
    for value in job.arguments(pointers):
        if isinstance(value, bytes):
            value = ctypes.create_string_buffer(value, len(value))
        values.append(ctypes.c_uint32(value) if isinstance(value, np.uint32) else value)
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    sizes = (ctypes.c_uint * 6)(*job.groups, *interface_of(job.module).workgroup_size)
    function(addresses, sizes)
    return results


def on_wgpu(device, jobs):
    """The arrays after each job, on a device of wgpu's own."""
    return [_run_wgpu(device, job) for job in jobs]


def _run_wgpu(device, job):
    shader = device.create_shader_module(code=print_wgsl(job.module))
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": shader, "entry_point": "main"})
    contents = [*job.arrays.values(), *([np.frombuffer(job.uniform, np.uint8)] if job.uniform else [])]
    buffers = [
        device.create_buffer_with_data(data=np.ascontiguousarray(content), usage="STORAGE | UNIFORM | COPY_SRC")
        for content in contents
    ]
    entries = [
        {"binding": number, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
        for number, buffer in enumerate(buffers)
    ]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(*job.groups)
    compute.end()
    device.queue.submit([encoder.finish()])
    results = {}
    for (name, array), buffer in zip(job.arrays.items(), buffers, strict=False):
        results[name] = np.frombuffer(device.queue.read_buffer(buffer), array.dtype).reshape(array.shape)
    return results
