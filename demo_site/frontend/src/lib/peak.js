// The peak rate of an adapter: a kernel that only multiplies and adds, in registers.

const INVOCATIONS = 64; // per workgroup
const REPEATS = 256;
const CHAINS = 8; // independent ones, of four components each
const OPERATIONS = 2 * 4 * CHAINS * REPEATS; // per invocation
const ROUND = 60; // milliseconds of a round, at least: submitting and waiting take up to one
const MOST_WORKGROUPS = 65_535; // of a dispatch, by default
const MOST_DISPATCHES = 1024; // of a round
const ROUNDS = 5;

const letters = [..."abcdefgh"].slice(0, CHAINS);

// Factor and addend depend on the invocation, so that no compiler can evaluate the loop.
const SOURCE = `
@group(0) @binding(0) var<storage, read_write> result: array<vec4f>;

@compute @workgroup_size(${INVOCATIONS})
fn main(@builtin(global_invocation_id) id: vec3u) {
  let factor = vec4f(1.0 - f32(id.x & 3u) * 1e-6);
  let addend = vec4f(f32(id.x & 7u) * 1e-6);
  ${letters.map((name, i) => `var ${name} = vec4f(${i}.5);`).join(" ")}
  for (var i = 0u; i < ${REPEATS}u; i++) {
    ${letters.map((name) => `${name} = fma(${name}, factor, addend);`).join("\n    ")}
  }
  result[id.x % arrayLength(&result)] = ${letters.join(" + ")};
}`;

/** GFLOP/s, the median of five rounds, each waited for. Dispatches are added until a round takes long enough. */
export async function multiplyAddPeak(adapter) {
  const device = await adapter.requestDevice();
  try {
    const module = device.createShaderModule({ code: SOURCE });
    const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } });
    const result = device.createBuffer({ size: 16 * INVOCATIONS * 1024, usage: GPUBufferUsage.STORAGE });
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer: result } }] });
    let [workgroups, dispatches] = [16, 1];
    const milliseconds = async () => {
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      for (let i = 0; i < dispatches; i++) pass.dispatchWorkgroups(workgroups);
      pass.end();
      const start = performance.now();
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
      return performance.now() - start;
    };
    await milliseconds(); // compiles
    while ((await milliseconds()) < ROUND && dispatches < MOST_DISPATCHES) {
      if (workgroups < MOST_WORKGROUPS) workgroups = Math.min(4 * workgroups, MOST_WORKGROUPS);
      else dispatches *= 2;
    }
    const rates = [];
    for (let round = 0; round < ROUNDS; round++) {
      rates.push((dispatches * workgroups * INVOCATIONS * OPERATIONS) / (await milliseconds()) / 1e6);
    }
    return rates.sort((first, second) => first - second)[ROUNDS >> 1];
  } finally {
    device.destroy();
  }
}
