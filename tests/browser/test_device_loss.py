"""A page whose device is destroyed: training continues from a snapshot, and use of lost tensors is an error."""

import json

from training_page import CATCHING, fresh_page, with_training


def test_a_step_compiled_with_recover_survives_a_device_that_is_destroyed_in_mid_run(browser):
    with fresh_page(browser, CATCHING) as python:
        program = """
            import js
            params, optimizer, step = make(recover=True, snapshot_every=5)
            first = ow.device("webgpu")
            for number in range(10):
                if number == 7:
                    await step._guard._task  # the snapshot before step 5 arrives
                    js.lastDevice.destroy()
                    await js.lastDevice.lost
                step(*batch(number))
            after = params[0].tolist()
            again, optimizer, step = make()
            for number in [0, 1, 2, 3, 4, 7, 8, 9]:
                step(*batch(number))
            [ow.device("webgpu") is not first, after == again[0].tolist()]
            """
        assert python.run(with_training(program)) == [True, True]


def test_recover_brings_a_lost_device_back_to_the_last_snapshot(browser):
    with fresh_page(browser, CATCHING) as python:
        program = """
            import js
            params, optimizer, step = make()
            for number in range(3):
                step(*batch(number))
            await ow.snapshot_async()
            step(*batch(3))
            js.lastDevice.destroy()
            await js.lastDevice.lost
            try:
                step(*batch(4))
                message = "nothing happened"
            except ow.errors.DeviceLostError as error:
                message = str(error)
            names = [one.name for one in await ow.recover_async()]
            step(*batch(4))
            after = params[0].tolist()
            again, optimizer, step = make()
            for number in [0, 1, 2, 4]:
                step(*batch(number))
            json.dumps([message, names, after == again[0].tolist()])
            """
        message, names, is_same = json.loads(python.run(with_training(program)))
    assert "was lost" in message
    assert "recover()" in message
    assert (names, is_same) == (["webgpu"], True)


def test_a_read_that_is_under_way_when_the_device_goes_is_our_error(browser):
    with fresh_page(browser, CATCHING) as python:
        program = """
            import js
            x = ow.ones((1 << 20,), device="webgpu")
            y = x + 1.0
            js.lastDevice.destroy()
            try:
                y.tolist()
                message = "nothing happened"
            except ow.errors.DeviceLostError as error:
                message = str(error)
            message
            """
        assert "was lost" in python.run(with_training(program))


def test_bytes_that_have_come_when_the_device_goes_but_were_not_taken_are_lost(browser):
    with fresh_page(browser, CATCHING) as python:
        program = """
            import js
            backend = ow.device("webgpu").backend
            handle = backend.allocate(16)
            staging = await backend._transport.read(handle, 0, 16)
            js.lastDevice.destroy()
            try:
                backend._take(staging, 16)
                message = "nothing happened"
            except ow.errors.DeviceLostError as error:
                message = str(error)
            await js.lastDevice.lost
            message
            """
        assert "was lost" in python.run(with_training(program))
