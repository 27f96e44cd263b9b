"""Fixtures of the tests of the tuner: a cache folder of their own, and a device that is restored."""

import pytest

from optirs_web.runtime.tuner import switch


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and a tuner about which nobody has said anything."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("OPTIRS_TUNE", raising=False)
    monkeypatch.setattr(switch, "_requests", [])
    return tmp_path


@pytest.fixture
def vulkan(open_device, cache):
    """A device that is left as it was."""
    device = open_device("vulkan")
    yield device
    device.backend.tuned = None
