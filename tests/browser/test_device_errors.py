"""Errors of the device `webgpu` in a real page: without WebGPU, without memory, and for a shader that is refused."""

import json
import textwrap

from training_page import fresh_page, with_training


def test_without_webgpu_the_error_names_the_settings_and_versions(browser):
    with fresh_page(browser, "Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined });") as python:
        message = python.run(
            textwrap.dedent(
                """
                import optirs_web as ow
                messages = []
                for name in ("webgpu", "auto"):
                    try:
                        await ow.device_async(name)
                    except ow.errors.DeviceNotAvailableError as error:
                        messages.append(str(error))
                "|".join(messages)
                """
            )
        )
    by_name, auto = message.split("|")
    assert "this browser lacks WebGPU or has it disabled" in by_name
    for words in ("Chrome and Edge from 113", "chrome://flags/#enable-unsafe-webgpu", "Safari from 26", "about:config"):
        assert words in by_name
        assert words in auto
    assert "numpy is not installed" in auto


def test_more_memory_than_a_buffer_can_have_is_refused_and_work_goes_on(browser_python):
    program = """
        device = ow.device("webgpu")
        try:
            ow.zeros((device.capabilities.max_buffer_bytes // 4 + 1,))
        except ow.errors.OutOfDeviceMemoryError as error:
            found = [error.asked, error.limit]
        json.dumps([*found, (ow.ones((3,)) + 1.0).tolist()])
        """
    requested, limit, after = json.loads(browser_python.run(with_training(program)))
    assert requested > limit
    assert after == [2.0, 2.0, 2.0]


def test_a_shader_that_the_browser_refuses_is_named_at_the_next_synchronization(browser):
    with fresh_page(browser) as python:
        message = python.run(
            textwrap.dedent(
                """
                import optirs_web as ow
                from optirs_web.runtime.buffer import View
                from optirs_web.runtime.map_kernels import elementwise
                device = ow.device("webgpu")
                kernel = elementwise("relu", "relu", ("tensor",), 0)
                kernel.wgsl_for = lambda host, software: "this is no shader"
                try:
                    ow.tensor([1.0]).relu()
                    device.synchronize()
                    message = "nothing happened"
                except ow.errors.ShaderError as error:
                    message = str(error)
                message
                """
            )
        )
    assert message.startswith("relu:1:1: refused by the browser's compiler")


NOTING = """
const request = GPU.prototype.requestAdapter;
GPU.prototype.requestAdapter = function (options) {
  (globalThis.preferences ??= []).push(options?.powerPreference ?? "none");
  return request.call(this, options);
};
"""


def test_power_is_passed_on_when_the_adapter_is_first_asked_for(browser):
    with fresh_page(browser, NOTING) as python:
        program = """
            import json, js
            import optirs_web as ow
            try:
                await ow.device_async("auto", power="most")
            except ValueError as error:
                refused = str(error)
            device = await ow.device_async("auto", power="low")
            same = await ow.device_async("auto", power="high")
            (info,) = [one for one in ow.devices() if one.name == "webgpu"]
            features = info.features == device.capabilities.features
            json.dumps([refused, device is same, features, list(js.preferences)])
            """
        refused, is_same, has_features, preferences = json.loads(python.run(textwrap.dedent(program)))
    assert refused == "power (or OPTIRS_POWER) must be one of low, high, not 'most'"
    assert (is_same, has_features) == (True, True)
    assert preferences == ["low-power"]
