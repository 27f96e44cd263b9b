"""Fixtures of the tests of placement: two devices, and a cache folder of their own."""

import pytest

import optirs_web as ow
from optirs_web.placing import choice


@pytest.fixture(autouse=True)
def cpu(open_device):
    return open_device("cpu")


@pytest.fixture(autouse=True)
def gpu(open_device):
    return open_device("vulkan")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """An empty cache folder, nothing that was predicted before, and no policy left behind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choice, "_predictions", {})
    yield tmp_path
    ow.placement(None)
