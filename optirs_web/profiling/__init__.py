"""The profiler: when each kernel ran, what it moved and computed, how near it came to what the device can do.

`session` has what users call, and `tap` what listens between a device and its backend. `costs` tells bytes and
operations from a kernel's code, `peaks` measures a device, `analysis` brings these together, and `trace`, `table` and
`plot` show it.
"""

from .peaks import Peaks
from .records import Bottleneck, HostSpan, KernelRun, Step
from .session import Profile, profile

__all__ = ["Bottleneck", "HostSpan", "KernelRun", "Peaks", "Profile", "Step", "profile"]
