"""Schedulers: torch's fifteen names, arguments and numbers, for any option, evaluated on the device.

`scheduler.step()` moves a count on the device, which writes the option where the optimizer's kernels read it; in a
compiled step it is one more dispatch, with nothing up or down. `ScheduleLR` follows any of `optim.schedules`.
"""

from ...lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
