"""Count the host's work in a few cases, function calls to bytes of memory, and the instructions of a few kernels.

Unlike times, counts are the same on a busy machine: `test_counts.py` compares them with `counts.json`, which
`make counts` writes. `python tests/counts.py vulkan --functions replay` prints the calls by function.
`scripts/compare_counts.py` runs this file on another commit too.

Calls are those of Python functions in this repository. Comprehensions, generators and coroutines are left out, since
versions of Python differ in when these count as a call. Instructions are those of SPIR-V that naga writes.
"""

import argparse
import gc
import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["DEVICES", "FILE", "KERNELS", "PYTHON", "differences", "instructions", "instructions_of", "measured"]

FILE = Path(__file__).with_suffix(".json")
DEVICES = ("cpu", "vulkan")
ROWS = ("sum", "softmax", "layer_norm", "layer_norm_grad", "cross_entropy")
"""Kernels that reduce rows, also by subgroups: both forms are counted."""
KERNELS = ("adamw", "matmul", "batched_matmul", "attention", "sum_rows", *ROWS)
"""The kernels whose instructions are counted."""
_BARRIER = 224  # OpControlBarrier
COUNTED = ("dispatches", "submits", "bytes_up", "bytes_down")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

ALLOWED_FALL = 0.1
"""Share by which a count may fall before the file has to be updated, so that it cannot grow back unnoticed."""
ALLOWED_ON_OTHER_VERSIONS = 0.02
"""Share by which calls may grow on another version of Python than the file's, whose libraries call back differently."""

_ROOT = Path(__file__).parent.parent
_FOLDERS = tuple(f"{_ROOT / name}{os.sep}" for name in ("optirs_web", "native_backends", "shaders"))
_NOT_COUNTED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _is_counted(code):
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_flags & _NOT_COUNTED
    is_comprehension = code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>")  # part of the function from 3.12 on
    return is_function and not is_comprehension and code.co_filename.startswith(_FOLDERS)


@contextmanager
def _calls_in_block():
    """Count calls in a block, which is given the Counter, by code object."""
    calls = Counter()

    def note(frame, event, _):
        if event == "call" and _is_counted(frame.f_code):
            calls[frame.f_code] += 1

    gc.collect()
    gc.disable()  # finalizers would be counted in whatever case they happen to run
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        gc.enable()


def _cases(device):
    """Yield names and functions to count. Their order matters: in a new process nothing is cached for the first."""
    import numpy as np

    import optirs_web as ow

    model = ow.nn.Sequential(
        ow.nn.Linear(64, 128, device=device), ow.nn.ReLU(), ow.nn.Linear(128, 64, device=device), ow.nn.ReLU(),
        ow.nn.Linear(64, 10, device=device),
    )  # fmt: skip
    optimizer = ow.optim.AdamW(model.parameters(), lr=1e-3)

    @ow.compile
    def train_step(x, labels):
        optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    arrays = np.ones((32, 64), np.float32), np.zeros(32, np.int32)
    tensors = [ow.tensor(array, device=device) for array in arrays]
    yield "record", lambda: train_step(*tensors)
    for _ in range(2):
        train_step(*tensors)
    yield "replay", lambda: train_step(*tensors)
    for _ in range(2):
        train_step(*arrays)
    yield "replay_arrays", lambda: train_step(*arrays)

    a, b = ow.ones((64, 32), device=device), ow.ones((32, 16), device=device)

    def product():
        _ = a @ b
        device.flush()

    for _ in range(2):
        product()
    yield "product", product

    step, batch = _gpt(device)
    yield "record_gpt", lambda: step(*batch)
    step(*batch)
    yield "replay_gpt", lambda: step(*batch)


def _gpt(device):
    """Return the compiled training step of `examples/gpt.py`, and a batch."""
    sys.path.insert(0, str(_ROOT / "examples"))
    import gpt

    import optirs_web as ow

    model = gpt.GPT(64, device=device)
    codes = (ow.rand((gpt.BATCH, gpt.BLOCK + 1), device=device, seed=0) * 64.0).astype("int32")
    batch = codes[:, :-1].contiguous(), codes[:, 1:].contiguous()
    return gpt.train_step(model, ow.optim.AdamW(model.parameters(), lr=gpt.RATE)), batch


def _count(name):
    """Return by case the calls by code object, and all counts by name, on a device."""
    import optirs_web as ow

    device = ow.device(name)
    counted = {}
    for case, function in _cases(device):
        device.flush()
        before, memory = device.stats.copy(), device.memory_stats()
        device._peak_bytes = 0  # an observer of memory would add to the calls
        with _calls_in_block() as calls:
            function()
        happened, after = device.stats - before, device.memory_stats()
        counts = {"calls": calls.total(), **{name: getattr(happened, name) for name in COUNTED}}
        counts["allocations"] = after.allocated - memory.allocated
        counts["peak_memory"] = max(0, after.peak_bytes - memory.live_bytes - memory.pooled_bytes)
        counted[case] = calls, counts
    return counted


def instructions():
    """Return the counts of `KERNELS` in SPIR-V, as naga writes it; {} where naga is not installed.

    Where a kernel has workgroup memory, one barrier is naga's, which clears that memory.
    """
    from optirs_web.cli.shader import find_kernel
    from optirs_web.errors import ShaderError
    from optirs_web.translations import missing_compiler, translate

    if missing_compiler("spirv"):
        return {}
    kernels = {name: find_kernel(name, (), "update") for name in KERNELS}
    with suppress(ShaderError):  # of a commit whose kernels have no subgroups
        kernels |= {f"{name} by subgroups": linked(by_subgroups(kernels[name])) for name in ROWS}
    counted = {name: instructions_of(translate(kernel, "spirv")) for name, kernel in kernels.items()}
    return {name: {"instructions": total, "barriers": barriers} for name, (total, barriers) in counted.items()}


def by_subgroups(kernel):
    """Return the kernel that reduces rows by subgroups."""
    from optirs_web.runtime.kernels import CooperativeKernel, cooperative

    if isinstance(kernel, CooperativeKernel):
        return cooperative(kernel.name, SUBGROUPS=True)
    from optirs_web.runtime.form_kernels import form_kernel

    return form_kernel(kernel.form, SUBGROUPS=True)


def linked(kernel):
    """Return the kernel once linked. Raises ShaderError where its file lacks one of its overrides."""
    assert kernel.module
    return kernel


def instructions_of(spirv):
    """Return the numbers of instructions and of barriers of a SPIR-V module.

    The first word of an instruction has the length in its upper 16 bits, and the opcode in its lower.
    """
    words = memoryview(spirv).cast("I")
    offset, count, barriers = 5, 0, 0  # after the header
    while offset < len(words):
        barriers += words[offset] & 0xFFFF == _BARRIER
        offset, count = offset + (words[offset] >> 16), count + 1
    return count, barriers


def measured(name, file=__file__, options=(), **environment):
    """Count in a new process.

    Args:
        name: a device, or "spirv" for the instructions of kernels.
        file: this file, or its copy in another clone.
        options: of Python.
        environment: more variables.

    Returns:
        By case, or by kernel, the counts by name.

    Raises:
        RuntimeError: the process failed; the message is its standard error.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("OPTIRS_")}
    environment |= {"OPTIRS_CPU": "numpy", "OPTIRS_TUNE": "0", "PYTHONHASHSEED": "0"}
    environment = inherited | environment
    command = [sys.executable, *options, "-W", "ignore", str(file), name]
    process = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    if process.returncode:
        raise RuntimeError(process.stderr)
    return json.loads(process.stdout)


def differences(expected, counts, is_same_python=True):
    """Return a sentence for each count that grew, or fell by more than is allowed."""
    sentences = []
    for case, name, count in ((case, *item) for case, by_name in counts.items() for item in by_name.items()):
        was = expected.get(case, {}).get(name)
        margin = 0 if is_same_python or name != "calls" else ALLOWED_ON_OTHER_VERSIONS
        if was is None:
            sentences.append(f"{case}: no number of {name} is expected yet; `make counts` writes {count:,}")
        elif count > was * (1 + margin):
            sentences.append(
                f"{case}: {count:,} {name}, {was:,} were expected; if that is meant, `make counts` changes the "
                "expectation, in the same commit, whose message says why"
            )
        elif count < was * (1 - ALLOWED_FALL):
            sentences.append(
                f"{case}: only {count:,} {name}, {was:,} were expected; `make counts` lowers the expectation"
            )
    return sentences


def main():
    parser = argparse.ArgumentParser(description="count what the host does on a device, or on all for counts.json")
    parser.add_argument("device", nargs="?", help="print the counts of this device, or of spirv")
    parser.add_argument("--functions", metavar="CASE", help="print the calls of a case by function instead")
    options = parser.parse_args()
    if options.functions and options.device in (None, "spirv"):
        parser.error("--functions prints the calls on a device: name it")
    if options.device is None:
        counts = {"python": PYTHON, **{name: measured(name) for name in (*DEVICES, "spirv")}}
        FILE.write_text(json.dumps(counts, indent=1) + "\n", "utf-8")
        return
    if options.device == "spirv":
        print(json.dumps(instructions()))
        return
    counted = _count(options.device)
    if options.functions is None:
        print(json.dumps({case: counts for case, (_, counts) in counted.items()}))
        return
    if options.functions not in counted:
        parser.error(f"there is no case {options.functions!r}: {', '.join(counted)}")
    for code, count in counted[options.functions][0].most_common():
        file = Path(code.co_filename).relative_to(_ROOT)
        print(f"{count:7,} {file}:{code.co_firstlineno} {code.co_qualname}")


if __name__ == "__main__":
    main()
