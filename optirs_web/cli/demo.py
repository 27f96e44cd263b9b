"""``optirs-web demo``: serves the demo site from this machine, or exports it as static files."""

from __future__ import annotations

import re
import secrets
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..demo_site.settings import Settings

__all__ = ["demo"]

_NEEDED = ("fastapi", "jinja2", "uvicorn")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.*-]+(:\d+)?")
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~/-]*)?")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port.  [default: the first free one from 8000]")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs/demo"),
    show_default=True,
    help="Folder for checkpoints and results.",
)
@click.option("--token", envvar="OPTIRS_DEMO_TOKEN", show_envvar=True, help="Token required to write.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Host name that the server accepts.")
@click.option(
    "--allow-embed", "embedders", multiple=True, metavar="ORIGIN", help="Site that may embed the pages in a frame."
)
@click.option(
    "--public-address",
    "public",
    default="",
    metavar="URL",
    help="The site's public address, for link previews and the exported 404 page.",
)
@click.option(
    "--export",
    "target",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the site to DIR as static files instead of serving it.",
)
@click.option(
    "--pyodide",
    "source",
    type=click.Choice(["copy", "cdn"]),
    help="With --export: include a copy of Pyodide (default if installed), or load it from its CDN.",
)
@click.option("--open/--no-open", "opens", default=False, help="Open the first page in a browser.")
def demo(
    host: str,
    port: int | None,
    data: Path,
    token: str | None,
    hosts: tuple[str, ...],
    embedders: tuple[str, ...],
    public: str,
    target: Path | None,
    source: str | None,
    opens: bool,
) -> None:
    """Serve the demo site: models that train in the browser, with this library.

    Press Ctrl-C to stop. Native programs access its checkpoints with `optirs-web runs`.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise click.ClickException(f"the demo needs {', '.join(missing)}: pip install 'optirs-web[demo]'")
    if source is not None and target is None:
        raise click.UsageError("--pyodide is for --export; a server uses the Pyodide that OPTIRS_PYODIDE_DIST names")
    _check(token, embedders, public)
    from ..demo_site.settings import Settings

    settings = Settings(
        data=data,
        token=token or secrets.token_urlsafe(24),
        host=host,
        allowed_hosts=frozenset(name.lower() for name in hosts),
        frame_ancestors=embedders,
        public=public and public.rstrip("/") + "/",
    )
    if target is not None:
        _export(target, settings, source)
    else:
        _serve(settings, port, opens=opens)


def _check(token: str | None, embedders: Sequence[str], public: str) -> None:
    """Raise the error of the first of these options that is not valid."""
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise click.BadParameter("a token may contain only ASCII letters, digits and punctuation", param_hint="--token")
    for origin in embedders:
        if not _ORIGIN.fullmatch(origin):
            raise click.BadParameter(
                f"{origin!r} is not an origin such as https://example.org", param_hint="--allow-embed"
            )
    if public and not _ADDRESS.fullmatch(public):
        raise click.BadParameter(
            f"{public!r} is not an address such as https://example.org/demo/", param_hint="--public-address"
        )


def _serve(settings: Settings, port: int | None, *, opens: bool) -> None:
    """Serve the site until Ctrl-C, and open its first page where that is wanted."""
    from ..demo_site.app import create_app
    from ..demo_site.pages import why_no_pages
    from ..demo_site.server import bind, serve, url_of
    from ..demo_site.store import StoreError

    reason = why_no_pages(settings)
    if reason:
        raise click.ClickException(reason)
    try:
        listener = bind(settings.host, port)
    except OSError as error:
        where = settings.host if port is None else f"{settings.host}:{port}"
        raise click.ClickException(f"cannot listen on {where}: {error.strerror or error}") from error
    with listener:
        try:
            app = create_app(settings)
        except StoreError as error:
            raise click.ClickException(f"{error}, with --data FOLDER") from error
        except OSError as error:
            raise click.ClickException(f"cannot save data in {settings.data}: {error.strerror or error}") from error
        url = url_of(listener)

        def announce() -> None:
            click.echo(f"The demo is at   {url}")
            click.echo(f"Data is saved in {settings.data.resolve()}")
            click.echo(f"Token            {settings.token}")
            if settings.pyodide is None:
                click.echo(
                    "Pages load Python from the network; to avoid that, set OPTIRS_PYODIDE_DIST to a Pyodide folder."
                )
            click.echo("Press Ctrl-C to stop.")
            if opens:
                webbrowser.open(url)

        with closing(app.state.store):
            try:
                serve(app, settings, listener, announce)
            except KeyboardInterrupt:
                click.echo("\nThe demo has stopped.")


def _export(folder: Path, settings: Settings, source: str | None) -> None:
    from ..demo_site.export import ExportError, export_site

    if source == "copy" and settings.pyodide is None:
        raise click.ClickException(
            "Pyodide is not installed: run `make setup`, or set OPTIRS_PYODIDE_DIST to its folder"
        )
    if source == "cdn":
        settings = replace(settings, pyodide=None)
    shows_steps = sys.stderr.isatty()

    def report(step: str) -> None:
        if shows_steps:
            click.echo(f"\r{step:60}", nl=False, err=True)

    try:
        count = export_site(folder, settings, report=report)
    except ExportError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot write to {folder}: {error.strerror or error}") from error
    if shows_steps:
        click.echo(err=True)
    click.echo(
        f"{folder} has the site, {count:,} files. Serve it with any file server: python -m http.server -d {folder}"
    )
