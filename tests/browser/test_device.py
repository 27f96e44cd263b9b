"""The device `webgpu` in a real page: what a step costs, waiting and not waiting, loss, and bad news."""

import json
import textwrap
from contextlib import closing, contextmanager
from functools import partial

import pytest
from chromium import BrowserPython, chromium_context

TRAINING = """
import array, json
import optirs_web as ow

def make(**options):
    ow.manual_seed(0)
    device = ow.device("webgpu")
    params = [ow.Parameter(one) for one in (ow.randn((64, 32)) * 0.1, ow.zeros((32,)), ow.randn((32, 10)) * 0.1)]
    w0, b0, w1 = params
    optimizer = ow.optim.AdamW(params, lr=0.01)
    def train_step(x, labels):
        optimizer.zero_grad()
        loss = ow.cross_entropy((x @ w0 + b0).relu() @ w1, labels)
        loss.backward()
        optimizer.step()
        return loss
    return params, optimizer, ow.compile(train_step, **options)

def batch(number):
    pixels = array.array("f", ((number + 7 * one) % 13 / 13 for one in range(16 * 64)))
    return memoryview(pixels).cast("B").cast("f", [16, 64]), [one % 10 for one in range(16)]
"""


@pytest.fixture
def python(browser_python):
    """`python(program)`: runs it after TRAINING, in the page of the numerical cases; gives its last value."""
    return lambda program: browser_python.run(TRAINING + textwrap.dedent(program))


@contextmanager
def fresh_page(browser, init=""):
    """A page of its own, after a script that changes what Python finds there."""
    with chromium_context(browser) as page:
        page.add_init_script(init)
        with closing(BrowserPython(page)) as python:
            yield python


@pytest.fixture
def fresh_python(browser):
    """`with fresh_python(init="…") as python`: see `fresh_page`."""
    return partial(fresh_page, browser)


# Counts the calls of Python into the transport, and what WebGPU is asked for.
COUNTING = """
globalThis.counts = {};
const count = (name) => { counts[name] = (counts[name] ?? 0) + 1; };
const counted = (owner, name, label) => {
  const call = owner[name];
  owner[name] = function (...given) { count(label ?? name); return call.apply(this, given); };
};
counted(GPUQueue.prototype, "submit");
counted(GPUDevice.prototype, "createBindGroup");
counted(GPUDevice.prototype, "createComputePipeline");
counted(GPUDevice.prototype, "createBuffer");
counted(GPUBuffer.prototype, "mapAsync");
counted(GPUComputePassEncoder.prototype, "dispatchWorkgroups");
globalThis.countCalls = (transport) => {
  for (const name of Object.keys(transport)) counted(transport, name, "calls into JavaScript");
  return transport;
};
"""


def counts_of(browser_python, program):
    """What happens in the last call of `step`, by name."""
    return json.loads(
        browser_python.run(
            TRAINING
            + textwrap.dedent(program)
            + textwrap.dedent(
                """
                import js
                from pyodide.ffi import to_js
                js.counts = to_js({}, dict_converter=js.Object.fromEntries)
                before = ow.stats()
                step(*arguments)
                found = js.JSON.stringify(js.counts)
                assert (ow.stats() - before).bytes_down == 0
                found
                """
            )
        )
    )


@pytest.fixture(scope="module")
def counting(browser):
    """A page in which calls are counted, the transport registered by the page as under a strict policy."""
    with fresh_page(browser, COUNTING) as python:
        python.page.evaluate(
            """async () => {
              const folder = pyodide.runPython("import optirs_web; optirs_web.__path__[0]");
              const text = pyodide.FS.readFile(`${folder}/browser/transport.js`, { encoding: "utf8" });
              const source = new Blob([`export default ${text}`], { type: "text/javascript" });
              const { default: request } = await import(URL.createObjectURL(source));
              pyodide.registerJsModule("optirs_web_transport", { request: async () => {
                const adapter = await request();
                return { about: adapter.about, open: async () => countCalls(await adapter.open()) };
              } });
            }"""
        )
        yield python


def test_a_captured_training_step_is_one_call_and_one_submit(counting):
    found = counts_of(
        counting,
        """
        params, optimizer, step = make()
        arguments = batch(0)
        for _ in range(3):
            step(*arguments)
        """,
    )
    assert found.pop("dispatchWorkgroups") > 10
    assert found == {"calls into JavaScript": 1, "submit": 1}


@pytest.mark.parametrize("tensors", [1, 200])
def test_adamw_alone_is_two_dispatches_for_any_number_of_tensors_and_groups(counting, tensors):
    found = counts_of(
        counting,
        f"""
        device = ow.device("webgpu")
        params = [ow.Parameter(ow.ones((1 + 7 * number,))) for number in range({tensors})]
        groups = [{{"params": params[:50]}}, {{"params": params[50:120], "lr": 1e-2}}, {{"params": params[120:]}}]
        optimizer = ow.optim.AdamW(groups)
        for one in params:
            one.grad = ow.ones(one.shape)
        step, arguments = ow.compile(lambda: optimizer.step(), device=device), []
        step()
        step()
        """,
    )
    assert found == {"calls into JavaScript": 1, "submit": 1, "dispatchWorkgroups": 2}


def test_what_is_dropped_is_dropped_in_javascript_too(counting):
    found = counting.run(
        TRAINING
        + textwrap.dedent(
            """
            import gc
            device = ow.device("webgpu")
            def objects_after(rounds):
                for _ in range(rounds):
                    params, optimizer, step = make()
                    for number in range(3):
                        step(*batch(number)).item()
                    (params[0] * 2.0 + 1.0).sum().item()
                    del params, optimizer, step
                gc.collect()
                device.trim()
                (ow.ones((3,)) + 1.0).tolist()
                return device._backend._transport.count()
            first = objects_after(3)
            [first, objects_after(20)]
            """
        )
    )
    first, later = found
    assert later <= first + 5


# Waiting.


# Keeps the last device that was opened, for a test to destroy.
CATCHING = """
const request = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return (globalThis.lastDevice = await request.apply(this, given));
};
"""


WITHOUT_JSPI = "delete WebAssembly.Suspending; delete WebAssembly.promising;"


def test_without_jspi_everything_that_waits_is_awaited(fresh_python):
    with fresh_python(WITHOUT_JSPI) as python:
        result = python.run(
            TRAINING
            + textwrap.dedent(
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
                for call in (params[0].tolist, device.synchronize, optimizer.state_dict, losses and ow.snapshot):
                    try:
                        call()
                    except ow.errors.UnsupportedError as error:
                        found["refused"].append(str(error))
                json.dumps(found)
                """
            )
        )
        found = json.loads(result)
    refused = found.pop("refused")
    assert len(refused) == 4
    assert all("JavaScript Promise Integration" in one and "await" in one for one in refused)
    assert "await optirs_web.device_async" in found.pop("before")[0]
    assert found == {
        "jspi": False,
        "devices": ["webgpu"],
        "falls": True,
        "steps": 8.0,
        "extra": {"at": 8},
        "same": True,
    }


def test_without_jspi_a_step_recovers_when_its_call_is_awaited(fresh_python):
    with fresh_python(WITHOUT_JSPI + CATCHING) as python:
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
        assert python.run(TRAINING + textwrap.dedent(program)) is True


WORKER = """
async () => {
  const source = `
    import { loadPyodide } from "${location.origin}/pyodide/pyodide.mjs";
    onmessage = async ({ data }) => {
      const pyodide = await loadPyodide({ indexURL: "${location.origin}/pyodide/" });
      pyodide.unpackArchive(await (await fetch("${location.origin}/library.whl")).arrayBuffer(), "wheel");
      postMessage(await pyodide.runPythonAsync(data));
    };
    onerror = (event) => postMessage("error: " + event);
    onunhandledrejection = (event) => postMessage("error: " + event.reason);
  `;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  globalThis.worker = new Worker(url, { type: "module" });
}
"""


def test_it_trains_in_a_worker_as_in_the_page(browser_python, python):
    program = """
        params, optimizer, step = make()
        json.dumps([step(*batch(number)).item() for number in range(5)])
        """
    browser_python.page.evaluate(WORKER)
    in_worker = browser_python.page.evaluate(
        """(program) => new Promise((resolve) => {
          worker.onmessage = ({ data }) => { worker.terminate(); resolve(data); };
          worker.postMessage(program);
        })""",
        TRAINING + textwrap.dedent(program),
    )
    assert in_worker == python(program)


# Buffers in and out.


def test_any_buffer_goes_in_and_a_typed_view_comes_out(python):
    found = json.loads(
        python(
            """
            import warnings
            warnings.simplefilter("ignore")
            given = {
                "f": array.array("f", [1.5, -2.0]), "i": array.array("i", [1, -2]), "I": array.array("I", [1, 2]),
                "d": array.array("d", [1.5, -2.0]), "q": array.array("q", [1, -2]), "h": array.array("h", [1, -2]),
                "B": bytes([1, 2]), "list": [[1.0, 2.0], [3.0, 4.0]],
            }
            found = {key: [str(t.dtype), t.tolist()] for key, one in given.items() for t in [ow.tensor(one)]}
            view = memoryview(array.array("f", range(6))).cast("B").cast("f", [2, 3])
            out = ow.tensor(view).read()
            found["shaped"] = [out.format, list(out.shape), out.tolist()]
            for key, bad in {"overflow": array.array("q", [1 << 40]), "infinite": array.array("d", [1e300]),
                             "object": object(), "strided": view[::2]}.items():
                try:
                    found[key] = ow.tensor(bad).tolist()
                except Exception as error:
                    found[key] = f"{type(error).__name__}: {error}"
            json.dumps(found)
            """
        )
    )
    numbers = [1, -2]
    assert {key: found[key] for key in "fdiqhIB"} == {
        "f": ["float32", [1.5, -2.0]],
        "d": ["float32", [1.5, -2.0]],
        "i": ["int32", numbers],
        "q": ["int32", numbers],
        "h": ["int32", numbers],
        "I": ["uint32", [1, 2]],
        "B": ["int32", [1, 2]],
    }
    assert found["list"] == ["float32", [[1.0, 2.0], [3.0, 4.0]]]
    assert found["shaped"] == ["f", [2, 3], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]
    assert found["strided"] == [[0.0, 1.0, 2.0]]
    assert found["overflow"] == "OverflowError: a value does not fit int32"
    assert found["infinite"] == "OverflowError: a value does not fit float32"
    assert found["object"].startswith("UnsupportedError: a tensor cannot be made of object")


# Bad news.


def test_without_webgpu_the_error_names_the_settings_and_versions(fresh_python):
    with fresh_python("Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined });") as python:
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
    assert "this browser has no WebGPU, or has it switched off" in by_name
    for words in ("Chrome and Edge from 113", "chrome://flags/#enable-unsafe-webgpu", "Safari from 26", "about:config"):
        assert words in by_name
        assert words in auto
    assert "numpy is not installed" in auto


def test_a_step_compiled_with_recover_survives_a_device_that_is_destroyed_in_mid_run(fresh_python):
    with fresh_python(CATCHING) as python:
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
        assert python.run(TRAINING + textwrap.dedent(program)) == [True, True]


def test_recover_brings_a_lost_device_back_to_the_last_snapshot(fresh_python):
    with fresh_python(CATCHING) as python:
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
        message, names, is_same = json.loads(python.run(TRAINING + textwrap.dedent(program)))
    assert "was lost" in message
    assert "recover()" in message
    assert (names, is_same) == (["webgpu"], True)


def test_a_read_that_is_under_way_when_the_device_goes_is_our_error(fresh_python):
    with fresh_python(CATCHING) as python:
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
        assert "was lost" in python.run(TRAINING + textwrap.dedent(program))


def test_more_memory_than_a_buffer_can_have_is_refused_and_work_goes_on(python):
    found = python(
        """
        device = ow.device("webgpu")
        try:
            ow.zeros((device.capabilities.max_buffer_bytes // 4 + 1,))
        except ow.errors.OutOfDeviceMemoryError as error:
            found = [error.asked, error.limit]
        json.dumps([*found, (ow.ones((3,)) + 1.0).tolist()])
        """
    )
    asked, limit, after = json.loads(found)
    assert asked > limit
    assert after == [2.0, 2.0, 2.0]


def test_a_shader_that_the_browser_refuses_is_named_at_the_next_synchronization(fresh_python):
    with fresh_python() as python:
        message = python.run(
            textwrap.dedent(
                """
                import optirs_web as ow
                from optirs_web.runtime.buffer import View
                from optirs_web.runtime.kernels import elementwise
                device = ow.device("webgpu")
                kernel = elementwise("relu", "relu", ("tensor",), 0)
                kernel.wgsl = lambda host: "this is no shader"
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
