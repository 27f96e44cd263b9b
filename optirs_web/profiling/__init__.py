"""The profiler: when each kernel ran, its bytes and operations, and its share of the device's measured peaks.

`session` has the public functions, `tap` records the calls between a device and its backend. `costs` computes bytes
and operations from a kernel's code, `peaks` measures a device, `analysis` combines these, and `trace`, `table` and
`plot` present the result.
"""

from .peaks import Peaks
from .records import Bottleneck, HostSpan, KernelRun, Step
from .session import Profile, profile

__all__ = ["Bottleneck", "HostSpan", "KernelRun", "Peaks", "Profile", "Step", "profile"]
