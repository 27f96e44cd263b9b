"""A browser without JavaScript Promise Integration: what waits is awaited, and a call that would wait says so."""

import json

from training_page import CATCHING, WITHOUT_JSPI, fresh_page, with_training


def test_without_jspi_everything_that_waits_is_awaited(browser):
    with fresh_page(browser, WITHOUT_JSPI) as python:
        result = python.run(
            with_training(
                """
                from pyodide.ffi import can_run_sync
                found = {"jspi": can_run_sync(), "before": [one.reason for one in ow.devices() if one.name == "webgpu"]}
                found["devices"] = [one.name for one in await ow.devices_async() if one.available]
                device = await ow.device_async("webgpu")
                params, optimizer, step = make(recover=True, snapshot_every=2)
                losses = [await (await step.call_async(*batch(0))).item_async() for _ in range(8)]
                found["falls"] = losses[-1] < losses[0]
                await device.synchronize_async()
                await optimizer.check_finite_async()
                state = await optimizer.state_dict_async()
                found["steps"] = float(state["state"][0]["step"])
                content = await ow.dump_checkpoint_async(dict(zip("abc", params)), optimizer, {"at": 8})
                params2, optimizer2, step2 = make()
                found["extra"] = ow.load_checkpoint(content, dict(zip("abc", params2)), optimizer2)
                found["same"] = await params2[0].tolist_async() == await params[0].tolist_async()
                optimizer.add_param_group({"params": [ow.Parameter([1.0])]})
                found["refused"] = []
                for call in (params[0].tolist, device.synchronize, optimizer.state_dict, ow.snapshot):
                    try:
                        call()
                    except ow.errors.UnsupportedError as error:
                        found["refused"].append(str(error))
                json.dumps(found)
                """
            )
        )
        actual = json.loads(result)
    refused = actual.pop("refused")
    assert len(refused) == 4
    assert all("JavaScript Promise Integration" in message and "await" in message for message in refused)
    assert "await optirs_web.device_async" in actual.pop("before")[0]
    assert actual == {
        "jspi": False,
        "devices": ["webgpu"],
        "falls": True,
        "steps": 8.0,
        "extra": {"at": 8},
        "same": True,
    }


def test_without_jspi_a_step_recovers_when_its_call_is_awaited(browser):
    with fresh_page(browser, WITHOUT_JSPI + CATCHING) as python:
        program = """
            import js
            await ow.device_async("webgpu")
            params, optimizer, step = make(recover=True, snapshot_every=5)
            for number in range(10):
                if number == 7:
                    await step._guard._task  # the snapshot before step 5 arrives
                    js.lastDevice.destroy()
                    await js.lastDevice.lost
                await step.call_async(*batch(number))
            after = await params[0].tolist_async()
            again, optimizer, step = make()
            for number in [0, 1, 2, 3, 4, 7, 8, 9]:
                step(*batch(number))
            after == await again[0].tolist_async()
            """
        assert python.run(with_training(program)) is True
