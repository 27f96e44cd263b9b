"""Other libraries: `torch` optimizers and state dicts, `onnx` graphs, steps for `jax`, `safetensors` files."""

from ..lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
