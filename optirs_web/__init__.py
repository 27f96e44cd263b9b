"""Train models on any GPU from Python, in a browser tab and natively, from one set of WGSL kernels.

Example:
    >>> import optirs_web as ow
    >>> x = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    >>> (x @ x).sum().item()
    54.0
"""

import os
from typing import Any

from .lazy import public_names

# Python started in a clone imports the clone's package, also where another one is installed: then no finder of an
# editable install knows the folders that pyproject.toml maps into the package.
_clone = os.path.dirname(__path__[0])
if os.path.isdir(f"{_clone}/native_backends"):
    from importlib.util import find_spec

    if not find_spec("optirs_web.native_backends"):
        __path__.append(_clone)


_get, __dir__, __all__ = public_names(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("optirs-web")
    if name in __all__:
        try:
            return _get(name)
        except ModuleNotFoundError as error:
            if name in ("benchmarks", "datasets") and error.name == f"optirs_web.{name}":
                raise ModuleNotFoundError(f"{error.name} comes with the demo: pip install 'optirs-web[demo]'") from None
            raise
    hint = f"; optirs_web.ops has '{name}'" if name in _get("ops").__all__ else ""
    raise AttributeError(f"module 'optirs_web' has no attribute '{name}'{hint}")
