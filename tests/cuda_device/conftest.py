"""The device `cuda` on a driver in software (`software_cuda`), or on NVIDIA's where that is there.

NVIDIA's compiler and cuda.bindings are real. The driver runs nothing before somebody waits, so that what is given to it
has to stay where it is as long as CUDA says.
"""

import pytest
import software_cuda
from requirements import missing


@pytest.fixture
def driver(cuda):
    """The driver in software, with a GPU to be found."""
    with software_cuda.shown() as result:
        if result is None:
            missing("software-cuda", "NVIDIA's own driver is there, so that none in software takes its place")
        yield result
        result.set(init=0, version=13000, capability=90, prohibited=0, pools=1, fault=0, instantiate=0, memory=2 << 30)
