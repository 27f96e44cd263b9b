// The browser's half of the `webgpu` device. A script whose value is one function: it answers with the adapter, which
// opens transports. Objects of WebGPU stay here, under numbers; only numbers, text and
// buffers pass between Python and JavaScript, so there is no proxy to lose. One `submit` runs any list of commands.
async (powerPreference, more) => {
  if (!navigator.gpu) return undefined;
  const request = () => navigator.gpu.requestAdapter({ powerPreference });
  const adapter = await request();
  if (!adapter) return undefined;

  const LIMITS = ["maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage",
    "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxComputeWorkgroupStorageSize",
    "maxComputeWorkgroupsPerDimension", "minStorageBufferOffsetAlignment"];
  const FEATURES = ["shader-f16", "subgroups", "timestamp-query", more]; // `more` only where the user asks for it
  const features = FEATURES.filter((name) => adapter.features.has(name));
  const limits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
  const { vendor = "", architecture = "", device: model = "", description = "" } = adapter.info ?? {};
  const about = JSON.stringify({
    description: description || model || [vendor, architecture].filter(Boolean).join(" ") || "a WebGPU adapter",
    software: Boolean(adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter) || architecture === "swiftshader",
    features, limits,
    matrices: [...(adapter.info?.subgroupMatrixConfigs ?? [])].map((config) =>
      [config.componentType, config.resultComponentType, config.M, config.N, config.K]),
    largestSubgroup: adapter.info?.subgroupMaxSize ?? 0,
  });

  let unused = adapter; // an adapter gives one device; the next one is asked of a fresh adapter
  const open = async () => {
    const chosen = unused ?? await request();
    unused = null;
    if (!chosen) throw new Error("the browser has no adapter any more");
    const device = await chosen.requestDevice({ requiredFeatures: features, requiredLimits: limits });
    wake(device).catch(() => {}); // nothing depends on it
    return transport(device);
  };
  // The first pipeline takes long, since the driver loads its compiler: it can do so while Python is still being loaded.
  const wake = (device) => device.createComputePipelineAsync({ layout: "auto", compute: { module: device.createShaderModule({
    code: `@group(0) @binding(0) var<storage, read_write> x: array<f32>;
      var<workgroup> shared_x: array<f32, 64>;
      @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) lane: u32) {
        for (var i = 0u; i < arrayLength(&x); i += 64u) {
          if i + lane < arrayLength(&x) { shared_x[lane] = x[i + lane]; }
          workgroupBarrier();
          x[i] += shared_x[63u - lane];
          workgroupBarrier();
        }
      }`,
  }) } });
  return { about, open };

  function transport(device) {
    const USAGE = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const [WRITE, COPY, RUN, REPLAY] = [0, 1, 2, 3];
    const IDLE_BYTES = 1 << 26;
    const objects = new Map(); // buffers, pipelines, bind groups and programs by number
    const failures = [];
    const scopes = new Set();
    const allocations = new Map();
    let last = 0;
    let lost = ""; // why, once it is
    let tell = () => {};
    let paced = Promise.resolve();

    const keep = (object) => (objects.set(++last, object), last);
    const fail = (kind, message, name = "") => failures[failures.push({ kind, message, name }) - 1];
    const lose = (why) => { if (!lost) tell(lost = why); };
    const isLost = device.lost.then((info) => lose(info.message || info.reason || "no reason was given"));
    device.addEventListener("uncapturederror", (event) => {
      fail(event.error instanceof GPUOutOfMemoryError ? "memory" : "validation", event.error.message);
    });

    // What goes wrong in `call` is noted as a failure of this kind once the browser knows it.
    const scoped = (filter, kind, name, call) => {
      device.pushErrorScope(filter);
      const made = call();
      const settled = device.popErrorScope()
        .then((error) => error && fail(kind, error.message, name), () => null) // rejected: the device is lost
        .finally(() => scopes.delete(settled));
      scopes.add(settled);
      return [made, settled];
    };
    const status = () => (lost || failures.length ? 1 : 0);

    const encodeCopy = (at, [source, from, target, to, size]) => at.encoder().copyBufferToBuffer(source, from, target, to, size);
    const encodeRun = (at, [pipeline, group, x, y, z]) => {
      const pass = at.pass();
      if (at.pipeline !== pipeline) pass.setPipeline(at.pipeline = pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(x, y, z);
    };
    const resolve = (op, words, at) => op === COPY
      ? [objects.get(words[at]), words[at + 1], objects.get(words[at + 2]), words[at + 3], words[at + 4]]
      : [objects.get(words[at]), objects.get(words[at + 1]), words[at + 2], words[at + 3], words[at + 4]];

    // One encoder, and a compute pass as long as no copy comes between.
    class Encoding {
      #encoder = null;
      #pass = null;
      pipeline = null;
      encoder() { this.#end(); return this.#encoder ??= device.createCommandEncoder(); }
      pass() { return this.#pass ??= (this.#encoder ??= device.createCommandEncoder()).beginComputePass(); }
      #end() { this.#pass?.end(); this.#pass = this.pipeline = null; }
      submit() { if (this.#encoder) { this.#end(); device.queue.submit([this.#encoder.finish()]); } }
    }

    // As Encoding, but each kernel is a pass between two timestamps, and a copy stands between two empty passes with one.
    class TimedEncoding {
      #encoder = null;
      #pass = null;
      #pairs = 0;
      #afterCopy = false;
      #arriving = [];
      pipeline = null;
      #begin(indices) {
        this.#encoder ??= device.createCommandEncoder();
        return this.#encoder.beginComputePass({ timestampWrites: { querySet: timestamps(), ...indices } });
      }
      #end() {
        this.#pass?.end();
        this.#pass = this.pipeline = null;
        if (this.#afterCopy) this.#begin({ beginningOfPassWriteIndex: 2 * this.#pairs++ + 1 }).end();
        this.#afterCopy = false;
        if (this.#pairs === PAIRS) this.#send();
      }
      encoder() {
        this.#end();
        this.#begin({ endOfPassWriteIndex: 2 * this.#pairs }).end();
        this.#afterCopy = true;
        return this.#encoder;
      }
      pass() {
        this.#end();
        const first = 2 * this.#pairs++;
        return this.#pass = this.#begin({ beginningOfPassWriteIndex: first, endOfPassWriteIndex: first + 1 });
      }
      #send() {
        const size = 16 * this.#pairs;
        const resolved = device.createBuffer({ size, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
        const buffer = staging(size);
        this.#encoder.resolveQuerySet(timestamps(), 0, 2 * this.#pairs, resolved, 0);
        this.#encoder.copyBufferToBuffer(resolved, 0, buffer, 0, size);
        device.queue.submit([this.#encoder.finish()]);
        resolved.destroy();
        this.#arriving.push(buffer.mapAsync(GPUMapMode.READ, 0, size).then(() => {
          const ticks = new BigUint64Array(buffer.getMappedRange(0, size)).slice();
          buffer.unmap();
          putBack(buffer);
          return ticks;
        }));
        this.#encoder = null;
        this.#pairs = 0;
      }
      // Resolves to the nanoseconds of all as JSON, or to "" if they did not arrive.
      times() {
        this.#end();
        if (this.#pairs) this.#send();
        const since = (tick) => Number(tick - (origin ??= tick));
        const text = (parts) => JSON.stringify(parts.flatMap((ticks) => Array.from(ticks, since)));
        return Promise.all(this.#arriving).then(text, () => "");
      }
    }
    let origin; // a number has no room for all the nanoseconds since 1970
    let querySet;
    const PAIRS = 2048; // a query set holds at most 4096
    const timestamps = () => querySet ??= device.createQuerySet({ type: "timestamp", count: 2 * PAIRS });

    // Buffers to read through are kept: to make one takes longer than to copy its bytes.
    const idle = [];
    const staging = (size) => {
      const rounded = Math.min(Math.max(256, 2 ** Math.ceil(Math.log2(size))), device.limits.maxBufferSize);
      const at = idle.findIndex((one) => one.size === rounded);
      if (at >= 0) return idle.splice(at, 1)[0];
      return device.createBuffer({ size: rounded, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    };
    const putBack = (one) => {
      idle.push(one);
      let held = idle.reduce((sum, { size }) => sum + size, 0);
      while (held > IDLE_BYTES) {
        held -= idle[0].size;
        idle.shift().destroy();
      }
    };

    const encodeAll = (at, words) => {
      for (let next = 0; next < words.length;) {
        const op = words[next++];
        if (op === WRITE) {
          const [buffer, offset, data] = [objects.get(words[next++]), words[next++], words[next++]];
          bytesOf(data, (bytes) => device.queue.writeBuffer(buffer, offset, bytes));
        } else if (op === REPLAY) {
          for (const [encode, step] of objects.get(words[next++])) encode(at, step);
        } else {
          (op === COPY ? encodeCopy : encodeRun)(at, resolve(op, words, next));
          next += 5;
        }
      }
      return at;
    };

    const bytesOf = (data, call) => {
      const view = data.getBuffer("u8"); // a view of Python's memory: gone when that grows, so it is used at once
      try { return call(view.data); } finally { view.release(); }
    };

    return {
      status,
      lost: (call) => { if (lost) call(lost); else tell = call; },
      // All since the last call; those behind the first mostly follow from it.
      failures: () => JSON.stringify(failures.splice(0)),
      // Resolves when what had been submitted before the call before this one is done.
      pace: () => {
        const before = paced;
        paced = device.queue.onSubmittedWorkDone().catch(() => {}); // a loss is said by what is submitted next
        return before;
      },
      done: () => Promise.all([device.queue.onSubmittedWorkDone(), ...scopes]),

      allocate: (size) => {
        const create = () => device.createBuffer({ size, usage: USAGE });
        const [buffer, settled] = scoped("out-of-memory", "memory", `${size}`, create);
        const number = keep(buffer);
        allocations.set(number, settled);
        settled.then(() => allocations.delete(number));
        return number;
      },
      // Why there was no memory for it, or "".
      refused: async (number) => {
        const failure = await allocations.get(number);
        if (failure) failures.splice(failures.indexOf(failure), 1);
        return failure?.message ?? "";
      },
      uniform: (data) => bytesOf(data, (bytes) => {
        const buffer = device.createBuffer({ size: bytes.length, usage: GPUBufferUsage.UNIFORM, mappedAtCreation: true });
        new Uint8Array(buffer.getMappedRange()).set(bytes);
        buffer.unmap();
        return keep(buffer);
      }),
      destroy: (number) => { objects.get(number)?.destroy(); objects.delete(number); },
      forget: (...numbers) => { for (const number of numbers) objects.delete(number); },
      count: () => objects.size,
      write: (number, offset, data) => {
        if (status()) return 1; // nothing was done
        bytesOf(data, (bytes) => device.queue.writeBuffer(objects.get(number), offset, bytes));
        return 0;
      },

      // `types` has the type of each binding, in order.
      compile: (name, code, ...types) => {
        const [pipeline] = scoped("validation", "shader", name, () => {
          const entries = types.map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } }));
          const layout = device.createPipelineLayout({ bindGroupLayouts: [device.createBindGroupLayout({ entries })] });
          const module = device.createShaderModule({ label: name, code });
          return device.createComputePipeline({ label: name, layout, compute: { module, entryPoint: "main" } });
        });
        device.queue.submit([]); // sends it off: the browser compiles while Python goes on
        return keep(pipeline);
      },
      group: (pipeline, ...words) => {
        const entries = [];
        for (let at = 0; at < words.length; at += 3) {
          const [buffer, offset, size] = [objects.get(words[at]), words[at + 1], words[at + 2]];
          entries.push({ binding: at / 3, resource: { buffer, offset, size } });
        }
        const { label } = objects.get(pipeline); // the kernel's name, for messages
        return keep(device.createBindGroup({ label, layout: objects.get(pipeline).getBindGroupLayout(0), entries }));
      },

      record: (...words) => {
        const steps = [];
        for (let at = 0; at < words.length; at += 6) {
          const encode = words[at] === COPY ? encodeCopy : encodeRun;
          steps.push([encode, resolve(words[at], words, at + 1)]);
        }
        return keep(steps);
      },
      submit: (...words) => {
        if (status()) return 1; // nothing was done
        encodeAll(new Encoding(), words).submit();
        return 0;
      },
      submitTimed: (...words) => encodeAll(new TimedEncoding(), words).times(),
      // Milliseconds from now until what was submitted has run.
      elapsed: () => {
        const start = performance.now();
        return device.queue.onSubmittedWorkDone().then(() => performance.now() - start);
      },

      // Copies now; resolves, once the bytes are there, to the number that `take` moves them to Python by, or to 0.
      read: (number, offset, size) => {
        const buffer = staging(size);
        const encoder = device.createCommandEncoder();
        encoder.copyBufferToBuffer(objects.get(number), offset, buffer, 0, size);
        device.queue.submit([encoder.finish()]);
        return buffer.mapAsync(GPUMapMode.READ, 0, size).then(
          () => keep(buffer),
          async () => {
            buffer.destroy();
            await Promise.race([isLost, new Promise((after) => setTimeout(after, 1000))]);
            return 0;
          },
        );
      },
      take: (number, target) => {
        const buffer = objects.get(number);
        objects.delete(number);
        const view = target.getBuffer("u8");
        try {
          view.data.set(new Uint8Array(buffer.getMappedRange(0, view.data.length)));
        } catch (error) { // the device went after the bytes had come
          lose(error.message);
          return status();
        } finally {
          view.release();
        }
        buffer.unmap();
        putBack(buffer);
        return status();
      },
      close: () => { objects.clear(); device.destroy(); },
    };
  }
}
