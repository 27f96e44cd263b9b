"""`vulkan` through Dawn, on the software driver that Chromium brings: Dawn refuses Mesa's up to version 22."""

import os
from pathlib import Path
from unittest import mock

from chromium import chromium_path

import optirs_web as ow

__all__ = ["dawn_device", "with_software_driver"]

_FOLDERS = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome")
_DRIVER = "vk_swiftshader_icd.json"


def with_software_driver():
    """Environment variables by which Vulkan has Chromium's driver alone, unless the user has named others."""
    named = os.environ.keys() & {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}
    folders = [Path(os.path.realpath(chromium_path() or "")).parent, *map(Path, _FOLDERS)]
    driver = next((one / _DRIVER for one in folders if (one / _DRIVER).is_file()), None)
    return {} if named or driver is None else {"VK_DRIVER_FILES": str(driver), "VK_ICD_FILENAMES": str(driver)}


def dawn_device():
    """The device, whose driver is looked for when it is opened: others of this process have their own.

    Raises:
        DeviceNotAvailableError: there is none, or wgpudawn is not installed.
    """
    with mock.patch.dict(os.environ, with_software_driver()):
        return ow.device("vulkan", through="dawn")
