"""``optirs-web runs``: copies checkpoints between this machine's files and a demo server, which pages use too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import click

import optirs_web as ow

from ..files import write_whole

__all__ = ["runs"]

_PATIENCE = 60.0
_MOST = 1 << 30

_url = click.option(
    "--url",
    envvar="OPTIRS_DEMO_URL",
    default="http://127.0.0.1:8000",
    show_default=True,
    help="Address of the demo server.",
)
_token = click.option(
    "--token", envvar="OPTIRS_DEMO_TOKEN", show_envvar=True, help="Token that the demo printed at start."
)


@click.group()
def runs() -> None:
    """Copy checkpoints to and from a running demo server."""


@runs.command("list")
@_url
def list_runs(url: str) -> None:
    """List the runs saved on the demo server."""
    answer = _ask(url, "GET", "/api/runs")
    for run in json.loads(answer.body):
        about = [f"{run['size']:,} bytes", run["optimizer"] or "no optimizer"]
        about += [f"{word} {run[word]}" for word in ("epoch", "step") if run[word] is not None]
        click.echo(f"{run['name']}  {', '.join(about)}, {run['updated']}")


@runs.command()
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_url
def pull(name: str, file: Path, url: str) -> None:
    """Save the checkpoint of run NAME to FILE."""
    answer = _ask(url, "GET", _address(name))
    if answer.headers.get("etag") not in (None, f'"{sha256(answer.body).hexdigest()}"'):
        raise click.ClickException("the checkpoint was damaged in transit; try again")
    ow.checkpoint_extra(answer.body)
    _write(file, answer.body)
    click.echo(f"saved the checkpoint of '{name}' to {file} ({len(answer.body):,} bytes)")


@runs.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("name")
@_url
@_token
def push(file: Path, name: str, url: str, token: str | None) -> None:
    """Upload FILE as the checkpoint of run NAME."""
    if not token:
        raise click.UsageError("pass --token or set OPTIRS_DEMO_TOKEN: the demo prints the token at start")
    content = file.read_bytes()
    ow.checkpoint_extra(content)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
    answer = _ask(url, "PUT", _address(name), content, headers)
    verb = "is a new run" if answer.status == 201 else "has a new checkpoint"
    click.echo(f"'{name}' {verb} ({len(content):,} bytes)")


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def _address(name: str) -> str:
    return f"/api/runs/{quote(name, safe='')}/checkpoint"


def _ask(
    url: str, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
) -> _Answer:
    """Send a request and return the answer; every failure becomes a message of one line."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise click.BadParameter(f"'{url}' is not an address like http://127.0.0.1:8000", param_hint="--url")
    # A proxy would look for the demo on its own machine.
    proxies = ProxyHandler({}) if parts.hostname in ("127.0.0.1", "::1", "localhost") else ProxyHandler()
    request = Request(url.rstrip("/") + path, content, dict(headers or {}), method=method)
    try:
        with build_opener(proxies).open(request, timeout=_PATIENCE) as response:
            body = response.read(_MOST)
            return _Answer(response.status, {key.lower(): value for key, value in response.headers.items()}, body)
    except HTTPError as error:
        with error:
            raise click.ClickException(_refusal(error)) from error
    except (HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise click.ClickException(f"no demo server answers at {url}: {reason}") from error


def _refusal(error: HTTPError) -> str:
    """Return the server's message, or its status where the answer is not in the demo's format."""
    try:
        answer: Any = json.loads(error.read(1 << 16))
        return f"the demo server refused: {answer['error']['message']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"the server answered {error.code} {error.reason}"


def _write(file: Path, content: bytes) -> None:
    """Replace the file as a whole, or refuse with a message of one line."""
    try:
        write_whole(file, [content])
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror or error}") from error
