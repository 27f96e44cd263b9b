"""Errors of the device `webgpu` for operations that the browser refuses after they were submitted."""

import json

from training_page import with_training

FAILING = """
import gc
from optirs_web.runtime.kernels import Binding, Kernel
device = ow.device("webgpu")
class Aliased(Kernel):
    name, module, parameters = "aliased", None, ()
    bindings = (Binding("x", "array<f32>", False), Binding("y", "array<f32>", True))
    def wgsl(self, host):
        return '''
            @group(0) @binding(0) var<storage, read> x: array<f32>;
            @group(0) @binding(1) var<storage, read_write> y: array<f32>;
            @compute @workgroup_size(1) fn main() { y[0] = x[0] + 1.0; }
        '''
def fail(x):
    device.dispatch(Aliased(), [x.view, x.view], 1)
def message_of(call):
    try:
        call()
    except ow.errors.LaunchError as error:
        return [error.operation, error.step, str(error)]
"""


def found(browser_python, program):
    return json.loads(browser_python.run(with_training(FAILING, program)))


def test_every_call_that_waits_names_the_operation_and_work_goes_on(browser_python):
    program = """
        x, other = ow.ones((4,)), ow.ones((1,))
        device.synchronize()
        waits = other.item, other.tolist, other.read, device.synchronize
        twins = other.item_async, other.tolist_async, other.read_async, device.synchronize_async
        messages = []
        for wait in waits:
            fail(x)
            messages.append(message_of(wait))
            wait()
        for twin in twins:
            fail(x)
            try:
                await twin()
            except ow.errors.LaunchError as error:
                messages.append([error.operation, error.step, str(error)])
            await twin()
        json.dumps([messages, (other + 1.0).tolist()])
        """
    messages, after = found(browser_python, program)
    assert len(messages) == 8
    for operation, step, message in messages:
        assert (operation, step) == ("aliased", None)
        assert message.startswith("the operation 'aliased' failed on device 'webgpu': ")
        assert "Work submitted with it did not run" in message
    assert after == [2.0]


def test_memory_freed_under_a_recorded_step_names_the_step(browser_python):
    program = """
        params, optimizer, step = make()
        step(*batch(0)).item()
        buffer = params[0].view.buffer
        buffer.release()
        device.memory_stats()
        message = message_of(lambda: step(*batch(1)).item())
        del params, optimizer, step, buffer  # later tests share the page, and the tuner binds all steps anew
        gc.collect()
        json.dumps([message, (ow.ones((3,)) + 1.0).tolist()])
        """
    (operation, step, message), after = found(browser_python, program)
    assert operation
    assert f"(step {step} of " in message
    assert "of a recorded program) failed on device 'webgpu': " in message
    assert after == [2.0, 2.0, 2.0]
