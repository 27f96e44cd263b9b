// Counts the calls into WebGPU, in a page where nothing is timed. A classic script that runs before all others, so that
// no library keeps an unwrapped method.
(() => {
  const counts = { dispatches: 0, submits: 0, bindGroups: 0, buffers: 0, writes: 0, pipelines: 0, destroyed: 0 };
  const count = (prototype, name, key) => {
    const method = prototype[name];
    prototype[name] = function (...values) {
      counts[key]++;
      return method.apply(this, values);
    };
  };
  count(GPUComputePassEncoder.prototype, "dispatchWorkgroups", "dispatches");
  count(GPUComputePassEncoder.prototype, "dispatchWorkgroupsIndirect", "dispatches");
  count(GPUQueue.prototype, "submit", "submits");
  count(GPUQueue.prototype, "writeBuffer", "writes");
  count(GPUDevice.prototype, "createBindGroup", "bindGroups");
  count(GPUDevice.prototype, "createBuffer", "buffers");
  count(GPUDevice.prototype, "createComputePipeline", "pipelines");
  count(GPUDevice.prototype, "createComputePipelineAsync", "pipelines");
  count(GPUBuffer.prototype, "destroy", "destroyed");
  globalThis.calls = () => ({ ...counts });
})();
