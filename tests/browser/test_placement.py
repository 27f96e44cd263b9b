"""Placement in a page, which has one device where NumPy is not there."""

import json
import textwrap

PROGRAM = """
import json
import optirs_web as ow
has_cpu = any(one.name == "cpu" and one.available for one in ow.devices())
x = ow.tensor([1.0, 2.0], device="webgpu", requires_grad=True)
with ow.placement("gpu" if has_cpu else "auto"):
    y = (x * x).sum()
    y.backward()
try:
    ow.placement("cpu")
    refused = ""
except ow.errors.DeviceNotAvailableError as error:
    refused = str(error)
ow.placement(None)
json.dumps([y.device.name, x.grad.tolist(), has_cpu or "numpy is not installed" in refused])
"""


def test_without_a_cpu_auto_is_the_one_device(browser_python):
    actual = json.loads(browser_python.run(textwrap.dedent(PROGRAM)))
    assert actual == ["webgpu", [2.0, 4.0], True]
