"""Other libraries: `torch` optimizers and state dicts, `onnx` graphs, steps for `jax`, `safetensors` files."""

import importlib
from types import ModuleType

__all__ = ["jax", "onnx", "safetensors", "torch"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'optirs_web.interop' has no attribute '{name}'")
