"""Messages for a machine on which wgpu finds no adapter: what is missing, and what to install or to set."""

from __future__ import annotations

import ctypes
import os
import sys
from glob import glob

__all__ = ["why_none"]

_SOFTWARE = "or a software one (Debian: apt install mesa-vulkan-drivers)"
_INSTALL = f"install the graphics card's Vulkan driver, {_SOFTWARE}"
_INSTALL_GL = "install an OpenGL driver (Debian: apt install libgl1-mesa-dri libegl1)"
_VULKAN_FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")  # the first is the newer name, and has precedence
_EGL_FILES = ("__EGL_VENDOR_LIBRARY_FILENAMES",)
_FOLDERS = ("/usr/local/etc", "/usr/local/share", "/etc", "/usr/share")
_NODES = ("/dev/dri/renderD*", "/dev/nvidia0", "/dev/dxg")  # through which drivers reach a GPU; the last is WSL's

_ELSEWHERE = {
    ("metal", "linux"): "Metal needs macOS; use vulkan",
    ("metal", "win32"): "Metal needs macOS; use dx12 or vulkan",
    ("metal", "darwin"): "this Mac has no GPU that Metal can use, or a virtual machine hides it",
    ("dx12", "linux"): "DX12 needs Windows 10 or later; use vulkan",
    ("dx12", "darwin"): "DX12 needs Windows 10 or later; use metal",
    ("dx12", "win32"): "update Windows 10 or later and the graphics card's driver",
    ("vulkan", "darwin"): "macOS has no Vulkan; use metal",
    ("vulkan", "win32"): "install the graphics card's driver from its vendor (NVIDIA, AMD, Intel), which brings Vulkan",
    ("gl", "darwin"): "wgpu does not use macOS's OpenGL; use metal",
    ("gl", "win32"): "wgpu can use none of the OpenGL drivers here; use dx12 or vulkan",
}


def why_none(name: str) -> str:
    """Return why there is no adapter of that name, as the end of a sentence."""
    elsewhere = _ELSEWHERE.get((name, sys.platform))
    if elsewhere:
        return elsewhere
    if name == "gl":
        return _why_no_gl()
    return _why_no_vulkan() if name == "vulkan" else f"{name} does not run on {sys.platform}"


def _why_no_vulkan() -> str:
    if not _loads("libvulkan.so.1"):
        loader = "the Vulkan loader, libvulkan.so.1, cannot be loaded (Debian: apt install libvulkan1"
        return f"{loader}; Fedora: dnf install vulkan-loader); and {_INSTALL}"
    hidden = _hidden(_VULKAN_FILES)
    if hidden:
        return f"{hidden}; or {_INSTALL}"
    drivers = _drivers()
    if not drivers:
        return f"the Vulkan loader is installed, but no driver in /usr/share/vulkan/icd.d; {_INSTALL}"
    return f"none of the installed Vulkan drivers ({', '.join(drivers)}) has a GPU; {_reach()}; or {_INSTALL}"


def _why_no_gl() -> str:
    if not _loads("libEGL.so.1") and not _loads("libEGL.so"):
        return f"libEGL.so.1 cannot be loaded; {_INSTALL_GL}"
    hidden = _hidden(_EGL_FILES)
    return f"{hidden}; or {_INSTALL_GL}" if hidden else _INSTALL_GL


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _hidden(variables: tuple[str, ...]) -> str:
    """Return the reason that a variable hides drivers; "" if none does."""
    for variable in variables:
        setting = os.environ.get(variable, "")
        if setting:
            absent = [file for file in setting.split(":") if not os.path.isfile(file)]
            fault = f"{', '.join(absent)} does not exist" if absent else "none of them has an adapter"
            return f"{variable}={setting} hides all drivers but those that it names, and {fault}: unset {variable}"
    return ""


def _drivers() -> list[str]:
    """The names of the files that tell the loader of drivers."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    folders = [home, *_FOLDERS, *os.environ.get("XDG_DATA_DIRS", "").split(":")]
    paths = [path for folder in folders if folder for path in glob(f"{folder}/vulkan/icd.d/*.json")]
    return sorted({os.path.basename(path) for path in paths})


def _reach() -> str:
    """Return why this process cannot use a GPU, as a clause of an error message, and what to do about it."""
    nodes = [path for pattern in _NODES for path in glob(pattern)]
    if not nodes:
        return (
            "this process sees no GPU (there is neither /dev/dri/renderD128 nor /dev/nvidia0): in a container, start "
            "it with one (docker run --gpus all, or --device /dev/dri)"
        )
    closed = [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return f"this user may not open {', '.join(closed)}: sudo usermod -aG render,video $USER, and log in again"
    return f"the GPU behind {', '.join(nodes)} needs another driver"
