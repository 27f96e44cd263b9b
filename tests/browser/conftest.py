"""What the tests of pages share: the demo's server, and patience."""

import os

import pytest
from chromium import ROOT, pyodide_folder
from demo_servers import running_server
from requirements import missing

# Only a full distribution of Pyodide has NumPy.
collect_ignore = [] if os.environ.get("OPTIRS_PYODIDE_DIST") else ["test_numpy.py"]


@pytest.fixture(scope="session")
def site(browser, tmp_path_factory):
    """The address of a running demo."""
    from playwright.sync_api import expect

    pyodide_folder()
    if not (ROOT / "demo_site/static/home.js").is_file():
        missing("webgpu", "the pages are not built: make bundles")
    expect.set_options(timeout=60_000)  # a software GPU on a busy machine
    with running_server(tmp_path_factory.mktemp("demo")) as (_, url):
        yield url.rstrip("/")
