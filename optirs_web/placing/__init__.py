"""The device that an operation or a step runs on, where there is more than one.

`policy` has what users call. `copies` keeps what was carried to another device. `choice` compares two devices for one
operation by what `rates` measured and `cache` kept; `steps` times a compiled step on each device.
"""

from .choice import Prediction
from .policy import placement

__all__ = ["Prediction", "placement"]
