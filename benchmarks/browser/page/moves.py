"""Time uploads and reads of 16 MB by the library, and by `to_js` and `to_py`."""

import array
import json
import time

import js
from js import Object
from pyodide.ffi import to_js

import optirs_web as ow

COUNT = 1 << 22
NBYTES = 4 * COUNT


def options(**values):
    return to_js(values, dict_converter=Object.fromEntries)


class Plain:
    """WebGPU called from Python, with the conversions that Pyodide documents first."""

    @classmethod
    async def open(cls):
        """Open a device of its own, with the buffers."""
        adapter = await js.navigator.gpu.requestAdapter()
        self = cls()
        self.device = await adapter.requestDevice()
        usage = js.GPUBufferUsage
        self.buffer = self.device.createBuffer(
            options(size=NBYTES, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        )
        self.staging = self.device.createBuffer(options(size=NBYTES, usage=usage.MAP_READ | usage.COPY_DST))
        return self

    def upload(self, values):
        """Write values to the buffer, by a copy in JavaScript."""
        self.device.queue.writeBuffer(self.buffer, 0, to_js(values))

    async def map(self):
        """Copy on the device and map the copy, for which every read has to wait."""
        encoder = self.device.createCommandEncoder()
        encoder.copyBufferToBuffer(self.buffer, 0, self.staging, 0, NBYTES)
        self.device.queue.submit(to_js([encoder.finish()]))
        await self.staging.mapAsync(js.GPUMapMode.READ)

    async def read(self):
        """Return the bytes of the buffer, by a copy in JavaScript."""
        await self.map()
        try:
            return self.staging.getMappedRange().slice(0).to_py()
        finally:
            self.staging.unmap()

    async def wait(self):
        """Wait until the device is idle."""
        await self.device.queue.onSubmittedWorkDone()


async def measure(rounds):
    """Return the milliseconds of each move, by round, as JSON."""
    device = await ow.device_async("webgpu")
    plain = await Plain.open()
    values = memoryview(array.array("f", range(COUNT)))
    times = {name: [] for name in ("upload", "upload, to_js", "read", "read, to_py", "map alone")}

    def note(name, start):
        times[name].append(1e3 * (time.perf_counter() - start))

    for _ in range(rounds + 1):
        tensor = None  # its memory serves the next one
        start = time.perf_counter()
        tensor = ow.tensor(values, device=device)
        note("upload", start)
        await device.synchronize_async()

        start = time.perf_counter()
        plain.upload(values)
        note("upload, to_js", start)
        await plain.wait()

        start = time.perf_counter()
        read = await tensor.read_async()
        note("read", start)
        assert read.tobytes() == values.tobytes()
        del read

        start = time.perf_counter()
        read = await plain.read()
        note("read, to_py", start)
        assert read.tobytes() == values.tobytes()
        del read

        start = time.perf_counter()
        await plain.map()
        note("map alone", start)
        plain.staging.unmap()
    return json.dumps({name: durations[1:] for name, durations in times.items()})  # the first round warms up
