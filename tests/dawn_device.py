"""`vulkan` through Dawn on Chromium's software driver, since Dawn refuses Mesa's up to version 22."""

import os
from pathlib import Path
from unittest import mock

from chromium import chromium_path

import optirs_web as ow

__all__ = ["dawn_device", "with_software_driver"]

_FOLDERS = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome")
_DRIVER = "vk_swiftshader_icd.json"


def with_software_driver():
    """Return environment variables that give Vulkan only Chromium's driver; none if the user has named others."""
    named = os.environ.keys() & {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}
    folders = [Path(os.path.realpath(chromium_path() or "")).parent, *map(Path, _FOLDERS)]
    driver = next((folder / _DRIVER for folder in folders if (folder / _DRIVER).is_file()), None)
    return {} if named or driver is None else {"VK_DRIVER_FILES": str(driver), "VK_ICD_FILENAMES": str(driver)}


def dawn_device():
    """Open the device; other devices of the process keep their own drivers.

    Raises:
        DeviceNotAvailableError: there is none, or wgpudawn is not installed.
    """
    with mock.patch.dict(os.environ, with_software_driver()):
        return ow.device("vulkan", through="dawn")
