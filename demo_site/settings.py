"""What a server is run with: where its files are, who may reach it, and how much it takes."""

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
        token: what has to be shown to write.
        host: the address that is bound. One that is not loopback is reached by any IP address of the machine.
        allowed_hosts: names in lower case that requests may ask for, besides ``localhost``, `host` and addresses.
        frame_ancestors: sites whose pages may hold pages of this one in a frame, as ``https://example.org``; none may.
        public: the address by which others know the site, as ``https://example.org/demo/``: links that are shown on
            other sites have a picture only where it is known.
        static: the folder of the bundles that `make demo` builds.
        templates: the folder of the pages.
        programs: the folder of the Python programs that run in the pages.
        pyodide: the folder of the Pyodide distribution; None takes it from the public CDN.
        clone: the folder with README.md and docs/, whose guides are shown; elsewhere there are none.
        reference: the folder of the reference that `make docs` builds; without it there is no link to it.
        max_checkpoint: bytes of one checkpoint.
        max_json: bytes of any other body.
        max_runs: how many runs are kept.
        max_total: bytes of all checkpoints together.
        max_results: how many benchmark results are kept; the oldest make room.
        max_uploads: checkpoints that are received at the same time.
        max_connections: connections that are open at the same time.
        max_client_connections: those of them that one client may hold.
        head_patience: seconds that the first line and the headers of a request may take.
        body_patience: seconds that a client may send nothing of a body that it has announced.
        least_body_rate: bytes a second that a body comes with, over all, once `body_patience` has passed.
        read_patience: seconds that a client may take nothing of an answer.
        max_compiles: requests for what other compilers make that may wait; one at a time is served.
        compile_patience: seconds that one of them may take.
        rate: requests of one client.
        write_rate: those of them that change something.
        clock: seconds that only grow; the rates count by it.
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
        """Only this machine reaches the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
