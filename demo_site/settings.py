"""The settings of a server: its folders, the hosts and sites that may reach it, and its limits."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .pyodide import local_pyodide

__all__ = ["Rate", "Settings"]

HERE = Path(__file__).resolve().parent
_MIB = 1 << 20


class Rate(NamedTuple):
    """A token bucket: `burst` requests at once, and `per_second` more each second."""

    per_second: float
    burst: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one server.

    Attributes:
        data: the folder of the checkpoints and the index; made when missing.
        token: the token that is required to write.
        host: the address that is bound. One that is not loopback is reached by any IP address of the machine.
        allowed_hosts: names in lower case that the Host header may have, besides ``localhost``, `host` and addresses.
        frame_ancestors: sites that may embed pages in a frame, such as ``https://example.org``; by default none.
        public: the site's public address, such as ``https://example.org/demo/``: link previews have a picture only
            where it is known.
        static: the folder of the bundles that `make demo` builds.
        templates: the folder of the pages.
        programs: the folder of the Python programs that run in the pages.
        pyodide: the folder of the Pyodide distribution; None takes it from the public CDN.
        clone: the folder with README.md and docs/, whose guides are shown; without them there are no guides.
        reference: the folder of the reference that `make docs` builds; without it there is no link to it.
        max_checkpoint: bytes of one checkpoint.
        max_json: bytes of any other body.
        max_runs: the number of runs that are kept.
        max_total: bytes of all checkpoints together.
        max_results: the number of benchmark results that are kept; above it the oldest are deleted.
        max_uploads: checkpoints that are received at the same time.
        max_connections: connections that are open at the same time.
        max_client_connections: connections that one client may have open.
        head_patience: seconds that the first line and the headers of a request may take.
        body_patience: seconds for which a client may send nothing of an announced body.
        least_body_rate: the least average rate of a body in bytes per second, once `body_patience` has passed.
        read_patience: seconds for which a client may read nothing of a response.
        max_compiles: waiting requests for texts of other compilers; one at a time is served.
        compile_patience: seconds that one such text may take.
        rate: the rate of one client's requests.
        write_rate: the rate of one client's requests that change something.
        clock: returns monotonic seconds, by which the rates count; None means `time.monotonic`.
    """

    data: Path
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    host: str = "127.0.0.1"
    allowed_hosts: frozenset[str] = frozenset()
    frame_ancestors: tuple[str, ...] = ()
    public: str = ""
    static: Path = HERE / "static"
    templates: Path = HERE / "templates"
    programs: Path = HERE / "programs"
    pyodide: Path | None = field(default_factory=local_pyodide)
    clone: Path = HERE.parent
    reference: Path = HERE.parent / "build" / "docs"
    max_checkpoint: int = 64 * _MIB
    max_json: int = 64 << 10
    max_runs: int = 200
    max_total: int = 2048 * _MIB
    max_results: int = 200
    max_uploads: int = 4
    max_connections: int = 256
    max_client_connections: int = 64
    head_patience: float = 10.0
    body_patience: float = 20.0
    least_body_rate: int = 16 << 10
    read_patience: float = 30.0
    max_compiles: int = 8
    compile_patience: float = 60.0
    rate: Rate = field(default=Rate(per_second=50, burst=500))
    write_rate: Rate = field(default=Rate(per_second=5, burst=60))
    clock: Callable[[], float] | None = None

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return True if a name or an address is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
