// What an adapter multiplies and adds at most: a kernel that does nothing else, in registers.

const INVOCATIONS = 64; // of a workgroup
const REPEATS = 256;
const CHAINS = 8; // of four components each, so that one need not wait for the other
const OPERATIONS = 2 * 4 * CHAINS * REPEATS; // of an invocation
const ROUND = 60; // milliseconds, at least, of a timed launch
const MOST_WORKGROUPS = 65_535;
const ROUNDS = 5;

const letters = [..."abcdefgh"].slice(0, CHAINS);

// Its factor and its addend depend on the invocation, so that no compiler can sum up the loop.
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

/** GFLOP/s: the median of some launches, each waited for. */
export async function multiplyAddPeak(adapter) {
  const device = await adapter.requestDevice();
  try {
    const module = device.createShaderModule({ code: SOURCE });
    const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } });
    const result = device.createBuffer({ size: 16 * INVOCATIONS * 1024, usage: GPUBufferUsage.STORAGE });
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer: result } }] });
    const milliseconds = async (workgroups) => {
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(workgroups);
      pass.end();
      const start = performance.now();
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
      return performance.now() - start;
    };
    let workgroups = 16;
    await milliseconds(workgroups); // compiles
    while ((await milliseconds(workgroups)) < ROUND && workgroups < MOST_WORKGROUPS) workgroups = Math.min(4 * workgroups, MOST_WORKGROUPS);
    const rates = [];
    for (let round = 0; round < ROUNDS; round++) {
      rates.push((workgroups * INVOCATIONS * OPERATIONS) / (await milliseconds(workgroups)) / 1e6);
    }
    return rates.sort((first, second) => first - second)[ROUNDS >> 1];
  } finally {
    device.destroy();
  }
}
