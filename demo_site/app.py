"""`create_app`: the FastAPI application with the pages, the files that they load, and the API."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

import optirs_web as ow

from .access import session_routes
from .bench import bench_routes
from .compiler import Compiler
from .errors import install_handlers
from .guard import Guard
from .pages import page_routes, site_facts
from .rendering import Renderer
from .runs import run_routes
from .settings import Settings
from .shader_catalog import shader_routes
from .store import Store

__all__ = ["create_app"]


_API = (session_routes, run_routes, bench_routes, shader_routes)


def create_app(settings: Settings) -> FastAPI:
    """Return the application of one server. It owns the data folder until the caller closes ``app.state.store``.

    Raises:
        StoreError: another server owns the folder, or its index is damaged.
        OSError: the folder cannot be made.
    """
    facts = site_facts(settings)
    renderer = Renderer(settings.templates, facts)
    app = FastAPI(
        title="OptiRS-Web demo",
        summary="Checkpoints and benchmark results, shared by pages and native programs.",
        version=ow.__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        middleware=[Middleware(Guard, settings=settings)],
        routes=page_routes(settings, renderer, facts),
    )
    for routes in _API:
        app.include_router(routes)
    operations = [route for routes in _API for route in routes.routes if isinstance(route, APIRoute)]
    install_handlers(app, renderer, operations)
    app.state.settings = settings
    app.state.upload_slots = asyncio.Semaphore(settings.max_uploads)
    app.state.compiler = Compiler(settings.compile_patience, settings.max_compiles)
    app.state.store = Store(
        settings.data,
        max_runs=settings.max_runs,
        max_total=settings.max_total,
        max_results=settings.max_results,
    )
    return app
