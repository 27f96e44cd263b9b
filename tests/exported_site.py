"""The site as files, served under a prefix by Python's plain file server."""

import http.server
import threading
from contextlib import contextmanager
from functools import partial

from optirs_web.demo_site.export import export_site
from optirs_web.demo_site.settings import Settings

__all__ = ["PREFIX", "served_export"]

PREFIX = "/some/prefix"


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Say nothing."""


@contextmanager
def served_export(folder, targets=("wgsl", "cuda", "numpy")):
    """The address of an export in a folder of the test's own, with shaders in a few languages."""
    export_site(folder / PREFIX.strip("/"), Settings(data=folder), targets)
    handler = partial(_Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
        finally:
            server.shutdown()
