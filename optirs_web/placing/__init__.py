"""Which device an operation or a step runs on, where there is more than one.

`policy` has what users call. `copies` keeps what has moved beside where it came from. `choice` compares devices for one
operation, by what `rates` measured and `cache` kept; `stretches` for operations that come again together, and `steps`
for a compiled step, by a `trial`.
"""

from .policy import placement

__all__ = ["placement"]
