"""NVIDIA's run-time compiler: CUDA text to PTX or to a cubin. It needs neither a GPU nor a driver."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from ..errors import DeviceNotAvailableError, OptirsError, UnsupportedError
from ..wgsl.print_c import COMPILER_OPTIONS

__all__ = ["MISSING", "architectures", "compile_cuda", "version"]

MISSING = "NVIDIA's compiler is not installed: pip install 'optirs-web[cuda]'"
"""What errors say then."""


def compile_cuda(
    text: str, arch: str = "sm_80", kind: Literal["ptx", "cubin"] = "ptx", options: tuple[str, ...] = ()
) -> bytes:
    """Compile CUDA text, as `print_c` returns it, and return PTX or a cubin as bytes.

    Args:
        text: the source.
        arch: the GPUs it is for, as "sm_80" (A100), "sm_90" (H100) or "sm_120"; newer ones take PTX too.
        kind: "ptx", which is text, or "cubin", machine code for that architecture.
        options: for the compiler, besides those that keep floats as they are in the text.

    Raises:
        DeviceNotAvailableError: the packages of the extra `cuda` are not installed.
        UnsupportedError: the compiler does not know this architecture.
        OptirsError: it refuses the text.
    """
    nvrtc = _nvrtc()
    known = [f"sm_{number}" for number in architectures()]
    if arch not in known:
        raise UnsupportedError(f"NVIDIA's compiler does not know '{arch}'; there are {', '.join(known)}")
    program = _value(nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))
    try:
        target = arch.replace("sm", "compute") if kind == "ptx" else arch  # it stops at PTX then
        flags = [f"--gpu-architecture={target}", *COMPILER_OPTIONS["cuda"], *options]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        if result.value:
            log = _bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            raise OptirsError(f"NVIDIA's compiler refuses this: {log.decode(errors='replace').strip()}")
        if kind == "ptx":
            return _bytes(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0")
        return _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@cache
def version() -> tuple[int, int]:
    """Return the version of CUDA that the compiler belongs to, as (major, minor).

    Raises:
        DeviceNotAvailableError: the packages of the extra `cuda` are not installed.
    """
    _, major, minor = _nvrtc().nvrtcVersion()
    return major, minor


@cache
def architectures() -> list[int]:
    """The compute capabilities that it makes machine code for, the oldest first: 90 is 9.0."""
    return sorted(_value(_nvrtc().nvrtcGetSupportedArchs()))


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # finds the library, which is a package of its own
    except (ImportError, RuntimeError, OSError) as error:
        raise DeviceNotAvailableError(f"{MISSING} ({error})") from error
    return nvrtc


def _value(answer: tuple[Any, ...]) -> Any:
    """Return the value beside the error code in the answer of a compiler's function; raise if the code is not 0."""
    if answer[0].value:
        raise OptirsError(f"NVIDIA's compiler: {answer[0].name}")
    return answer[1]


def _bytes(size: Any, fill: Any, program: Any) -> bytes:
    """Return the bytes that `fill` writes for a program; `size` says how many they are."""
    content = bytearray(_value(size(program)))  # which `fill` writes into
    fill(program, content)
    return bytes(content)
