"""The device `webgpu` in a real page: what a step costs, training in a worker, buffers in and out."""

import json
import textwrap

import pytest
from training_page import fresh_page, with_training

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
    """Return the counts of the last call of `step`, by name."""
    return json.loads(
        browser_python.run(
            with_training(
                program,
                """
                import js
                from pyodide.ffi import to_js
                js.counts = to_js({}, dict_converter=js.Object.fromEntries)
                before = ow.stats()
                step(*arguments)
                found = js.JSON.stringify(js.counts)
                assert (ow.stats() - before).bytes_down == 0
                found
                """,
            )
        )
    )


@pytest.fixture(scope="module")
def counting(browser):
    """A page in which calls are counted, the transport registered by the page as under a strict policy."""
    with fresh_page(browser, COUNTING) as python:
        python.page.evaluate(
            """async () => {
              const read = "import pkgutil; pkgutil.get_data('optirs_web.browser', 'transport.js').decode()";
              const text = pyodide.runPython(read);
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
    actual = counts_of(
        counting,
        """
        params, optimizer, step = make()
        arguments = batch(0)
        for _ in range(3):
            step(*arguments)
        """,
    )
    assert actual.pop("dispatchWorkgroups") > 10
    assert actual == {"calls into JavaScript": 1, "submit": 1}


def test_the_browser_compiles_kernels_while_the_step_is_recorded(counting):
    compiled = counting.run("""
        import json
        import optirs_web as ow
        x, device, compiled = ow.ones((8, 6)), ow.device(), []
        def step():
            compiled.append(device.stats.pipelines)
            y = x.softmax()  # nothing is fused with it
            compiled.append(device.stats.pipelines)
            y = (y * y).exp()  # these become one kernel once all is known
            compiled.append(device.stats.pipelines)
            return y
        ow.compile(step)()
        json.dumps([*compiled, device.stats.pipelines])
    """)
    before, *others = json.loads(compiled)
    assert others == [before + 1, before + 1, before + 2]


@pytest.mark.parametrize("tensors", [1, 200])
def test_adamw_alone_is_two_dispatches_for_any_number_of_tensors_and_groups(counting, tensors):
    actual = counts_of(
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
    assert actual == {"calls into JavaScript": 1, "submit": 1, "dispatchWorkgroups": 2}


def test_what_is_dropped_is_dropped_in_javascript_too(counting):
    actual = counting.run(
        with_training(
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
    first, later = actual
    assert later <= first + 5


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


def test_it_trains_in_a_worker_as_in_the_page(browser_python):
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
        with_training(program),
    )
    assert in_worker == browser_python.run(with_training(program))


def test_any_buffer_goes_in_and_a_typed_view_comes_out(browser_python):
    program = """
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
    actual = json.loads(browser_python.run(with_training(program)))
    numbers = [1, -2]
    assert {key: actual[key] for key in "fdiqhIB"} == {
        "f": ["float32", [1.5, -2.0]],
        "d": ["float32", [1.5, -2.0]],
        "i": ["int32", numbers],
        "q": ["int32", numbers],
        "h": ["int32", numbers],
        "I": ["uint32", [1, 2]],
        "B": ["int32", [1, 2]],
    }
    assert actual["list"] == ["float32", [[1.0, 2.0], [3.0, 4.0]]]
    assert actual["shaped"] == ["f", [2, 3], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]
    assert actual["strided"] == [[0.0, 1.0, 2.0]]
    assert actual["overflow"] == "OverflowError: a value does not fit int32"
    assert actual["infinite"] == "OverflowError: a value does not fit float32"
    assert actual["object"].startswith("UnsupportedError: a tensor cannot be made from object")


# Notes in which order the queue is given work and the page waits.
ORDER = """
globalThis.order = [];
for (const [owner, name] of [[GPUQueue, "submit"], [GPUQueue, "writeBuffer"], [GPUBuffer, "mapAsync"]]) {
  const call = owner.prototype[name];
  owner.prototype[name] = function (...given) {
    order.push(name);
    const result = call.apply(this, given);
    if (name === "mapAsync") result.then(() => order.push("mapped"));
    return result;
  };
}
"""


LOOPS = """
    import json, js
    import optirs_web as ow
    device = ow.device("webgpu")
    def calls():
        found = json.loads(js.JSON.stringify(js.order))
        js.order.length = 0
        return found
    data = ow.zeros((4, 32768)).read()
    (ow.zeros((2, 32768)) * 2.0).sum().item()  # compiles
    loops = []
    for wait in ("sync", "async"):
        calls()
        for x in ow.nn.DataLoader(data, 2):
            loss = (x * 2.0).sum()
            loss.item() if wait == "sync" else await loss.item_async()
        loops.append(calls())
    a, b = ow.ones((4,)), ow.ones((4,)) + 1.0
    device.synchronize()
    calls()
    reads = [a.tolist_async(), b.tolist_async()]
    values = [await one for one in reads]
    json.dumps([loops, values, calls()])
    """


def test_the_next_batch_is_written_while_the_step_runs_and_reads_overlap(browser):
    with fresh_page(browser, ORDER) as python:
        actual = python.run(textwrap.dedent(LOOPS))
    (waiting, awaiting), values, reads = json.loads(actual)
    # The step; the next batch, before the wait; the copy that is waited for.
    assert waiting == ["writeBuffer", "submit", "writeBuffer", *READ, "submit", *READ]
    assert awaiting == ["writeBuffer", "submit", "submit", "mapAsync", "writeBuffer", "mapped", "submit", *READ]
    assert values == [[1.0] * 4, [2.0] * 4]
    assert reads == ["submit", "mapAsync", "submit", "mapAsync", "mapped", "mapped"]


READ = ["submit", "mapAsync", "mapped"]


# How many submits the GPU has not done yet, at most.
UNDER_WAY = """
globalThis.underWay = { now: 0, most: 0, submits: 0 };
const submit = GPUQueue.prototype.submit;
GPUQueue.prototype.submit = function (commands) {
  submit.call(this, commands);
  if (!commands.length) return;
  underWay.submits++;
  underWay.most = Math.max(underWay.most, ++underWay.now);
  this.onSubmittedWorkDone().then(() => underWay.now--);
};
"""


def test_a_loop_that_only_submits_does_not_run_far_ahead_of_the_gpu(browser):
    program = """
        import json, js
        import optirs_web as ow
        x = ow.ones((512, 512))
        step = ow.compile(lambda: x @ x)
        for _ in range(60):
            step()
        found = json.loads(js.JSON.stringify(js.underWay))
        ow.device().synchronize()
        json.dumps(found)
        """
    with fresh_page(browser, UNDER_WAY) as python:
        actual = json.loads(python.run(textwrap.dedent(program)))
    assert actual["submits"] >= 60
    assert actual["most"] <= 32


def test_operations_one_by_one_do_not_run_far_ahead_of_the_gpu_either(browser):
    program = """
        import time
        import optirs_web as ow
        x = ow.ones((300, 300))
        (x @ x * 0.001).read()  # compiles
        began = time.perf_counter()
        (x @ x * 0.001).read()
        once = time.perf_counter() - began
        for _ in range(200):
            x = x @ x * 0.001
        began = time.perf_counter()
        ow.device().synchronize()
        (time.perf_counter() - began) / once
        """
    with fresh_page(browser) as python:
        assert python.run(textwrap.dedent(program)) < 40


def test_a_software_adapter_is_found_to_multiply_by_quads(browser_python):
    program = """
    import optirs_web as ow
    device = await ow.device_async("webgpu")
    x = ow.ones((20, 20), device=device)
    constants = []
    device.observers.append(lambda kernel, _: constants.append(kernel.constants))
    product = x @ x
    device.observers.pop()
    str([device.info.software, device.capabilities.quads, constants[-1]])
    """
    assert browser_python.run(textwrap.dedent(program)) == "[True, True, {'B_STAGING': 0, 'QUADS': True}]"


def test_where_the_browser_refuses_quads_the_device_opens_and_multiplies_by_tiles(browser):
    program = """
    import optirs_web as ow
    from optirs_web.runtime import products
    from optirs_web.runtime.kernels import CooperativeKernel, cooperative

    class Refused(CooperativeKernel):
        def wgsl(self, host="naga"):
            return super().wgsl(host).replace("quadSwapX", "quadSwapNowhere")

    def made(name, **flags):
        return Refused(name, flags) if name == "quad_lanes" else cooperative(name, **flags)

    products.cooperative = made
    device = await ow.device_async("webgpu")
    x = ow.ones((20, 20), device=device)
    str([device.capabilities.quads, sum(sum(row) for row in await (x @ x).tolist_async())])
    """
    with fresh_page(browser) as python:
        assert python.run(textwrap.dedent(program)) == "[False, 8000.0]"
