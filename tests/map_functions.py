"""Runs WGSL map functions over arrays: as printed Python, for NumPy and JAX, and on a WebGPU adapter.

Values are lists of scalar leaves, as in ``[param, grad, exp_avg, exp_avg_sq]``. On the adapter nothing of ours
takes part but the types of the functions: the text goes to wgpu as it stands, with an entry point that reads
every leaf of the parameters from one buffer of u32 and writes those of the result to another.
"""

import warnings

import numpy as np
from requirements import vulkan_device

from optirs_web.wgsl.checker import check
from optirs_web.wgsl.jax_dialect import JAX, XLA_OPTIONS
from optirs_web.wgsl.parser import parse
from optirs_web.wgsl.print_python import compile_python, print_python, python_name
from optirs_web.wgsl.straight import leaf_names
from optirs_web.wgsl.syntax import Function
from optirs_web.wgsl.types import Struct

DTYPES = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "bool": np.bool_}
LOADS = {"f32": "bitcast<f32>({})", "i32": "bitcast<i32>({})", "u32": "{}", "bool": "({} != 0u)"}
STORES = {"f32": "bitcast<u32>({})", "i32": "bitcast<u32>({})", "u32": "{}", "bool": "u32({})"}
WORKGROUP = 64


def checked(text, file="test.wgsl"):
    """The checked tree of a text without imports."""
    module = parse(text, file)
    check(module)
    return module


def compiled(text):
    """The functions in the tree, and the namespace of what is printed of them."""
    module = checked(text)
    functions = [d for d in module.declarations if isinstance(d, Function)]
    return functions, compile_python(print_python(module), "test")


def evaluate(namespace, function, leaves):
    """The leaves of the function's result for those of its parameters, in NumPy. Any warning is an error."""
    leaves = iter(leaves)
    arguments = [nested(parameter.type, leaves, namespace) for parameter in function.parameters]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        return flat(function.return_type, namespace[python_name(function.name)](*arguments))


def evaluate_in_jax(namespaces, functions, leaves, **options):
    """The leaves of the results of functions, each in its namespace, for those of their parameters; compiled as one.

    `options` are XLA's, besides those that the device sets.
    """
    import jax

    def compute(leaves):
        results = []
        with np.errstate(all="ignore"):
            for namespace, function, own in zip(namespaces, functions, leaves, strict=True):
                remaining = iter(own)
                arguments = [nested(param.type, remaining, namespace) for param in function.parameters]
                result = namespace[python_name(function.name)](*arguments)
                results.append(flat(function.return_type, result))
        return results

    return jax.tree.map(np.asarray, jax.jit(compute, compiler_options={**XLA_OPTIONS, **options})(leaves))


def on_each_device(request, text, chunk=1 << 14):
    """`compute(name, *arguments)`: a function of the text over arrays, where the fixture's parameter says."""
    functions, namespace = compiled(text)
    by_name = {function.name: function for function in functions}

    def on_cpu(name, *arguments):
        parts = []
        for start in range(0, len(arguments[0]), chunk):
            leaves = [argument[start : start + chunk] for argument in arguments]
            parts.append(evaluate(namespace, by_name[name], leaves)[0])
        return np.concatenate(parts)

    if request.param == "cpu":
        return on_cpu
    if request.param == "xla":
        request.getfixturevalue("open_device")("xla")
        printed = compile_python(print_python(checked(text), JAX), "test")
        return lambda name, *arguments: evaluate_in_jax([printed], [by_name[name]], [arguments])[0][0]
    if request.param == "webgpu":
        python = request.getfixturevalue("browser_python")
        return lambda name, *arguments: run_in_browser(python, text, [by_name[name]], list(arguments))[0]
    adapter = vulkan_device()
    return lambda name, *arguments: run_on_gpu(adapter, text, [by_name[name]], list(arguments))[0]


def parameter_types(function):
    return [leaf.name for parameter in function.parameters for _, leaf in leaf_names(parameter.type)]


def result_types(function):
    return [leaf.name for _, leaf in leaf_names(function.return_type)]


def flat(type_, value):
    """The leaves of a value as printed Python takes and returns it."""
    if isinstance(type_, Struct):
        return [leaf for m, part in zip(type_.members, value, strict=True) for leaf in flat(m.type, part)]
    return [value]


def nested(type_, leaves, namespace):
    """A value as printed Python takes it, from an iterator over its leaves."""
    if isinstance(type_, Struct):
        return namespace[type_.name](*(nested(member.type, leaves, namespace) for member in type_.members))
    return next(leaves)


def _construct(type_, loads):
    if isinstance(type_, Struct):
        return f"{type_.name}({', '.join(_construct(member.type, loads) for member in type_.members)})"
    return LOADS[type_.name].format(next(loads))


def entry_point(functions, *, one_input=False):
    """An entry point that calls each of the functions, whose leaves follow one another in the buffers.

    With `one_input` they have the same parameters, and get the same values.
    """
    loads = (f"inputs[{number}u * count + i]" for number in range(10**6))
    stores = 0
    lines = []
    if one_input:
        parameters = functions[0].parameters
        lines += [f"let given_{param.name} = {_construct(param.type, loads)};" for param in parameters]
    for function in functions:
        if one_input:
            arguments = ", ".join(f"given_{param.name}" for param in parameters)
        else:
            arguments = ", ".join(_construct(parameter.type, loads) for parameter in function.parameters)
        lines.append(f"let result_{function.name} = {function.name}({arguments});")
        for path, leaf in leaf_names(function.return_type, f"result_{function.name}"):
            lines.append(f"outputs[{stores}u * count + i] = {STORES[leaf.name].format(path)};")
            stores += 1
    body = "\n    ".join(lines)
    of_one = functions[:1] if one_input else functions
    leaves = sum(len(leaf_names(p.type)) for function in of_one for p in function.parameters)
    return f"""
@group(0) @binding(0) var<storage, read> inputs: array<u32>;
@group(0) @binding(1) var<storage, read_write> outputs: array<u32>;

@compute @workgroup_size({WORKGROUP})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = id.x;
    let count = arrayLength(&inputs) / {leaves}u;
    if (i >= count) {{ return; }}
    {body}
}}
"""


def run_on_gpu(device, text, functions, leaves, *, one_input=False):
    """The leaves of the functions' results, for leaves of their parameters: arrays of one length.

    Args:
        device: of wgpu.
        text: WGSL that declares the functions.
        functions: their nodes in the checked tree.
        leaves: an array for each leaf of each parameter of each function, in order.
        one_input: the functions have the same parameters, and `leaves` are those of one.
    """
    count = len(leaves[0])
    types = result_leaves(functions)
    shader = device.create_shader_module(code=text + entry_point(functions, one_input=one_input))
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": shader, "entry_point": "main"})
    inputs = device.create_buffer_with_data(data=words(leaves), usage="STORAGE")
    outputs = device.create_buffer(size=4 * count * len(types), usage="STORAGE | COPY_SRC")
    bindings = [
        {"binding": number, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
        for number, buffer in enumerate((inputs, outputs))
    ]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=bindings)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(-(-count // WORKGROUP))
    compute.end()
    device.queue.submit([encoder.finish()])
    results = np.frombuffer(device.queue.read_buffer(outputs), np.uint32)
    inputs.destroy()
    outputs.destroy()
    return typed(results, types, count)


IN_PAGE = """
async (number) => {
  const request = await (await fetch(`/in/${number}`)).arrayBuffer();
  const length = Number(new DataView(request).getBigUint64(0, true));
  const { code, results, workgroups } = JSON.parse(new TextDecoder().decode(new Uint8Array(request, 8, length)));
  const words = new Uint32Array(request, 8 + length);
  const device = globalThis.mapDevice ??= await (await navigator.gpu.requestAdapter()).requestDevice();
  const module = device.createShaderModule({ code });
  const compute = { module, entryPoint: "main" };
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute });
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const inputs = device.createBuffer({ size: words.byteLength, usage: STORAGE | COPY_DST });
  const outputs = device.createBuffer({ size: 4 * results, usage: STORAGE | COPY_SRC });
  const staging = device.createBuffer({ size: 4 * results, usage: MAP_READ | COPY_DST });
  device.queue.writeBuffer(inputs, 0, words);
  const entries = [inputs, outputs].map((buffer, binding) => ({ binding, resource: { buffer } }));
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(workgroups);
  pass.end();
  encoder.copyBufferToBuffer(outputs, 0, staging, 0, 4 * results);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const text = JSON.stringify({ "": ["I", results] });
  const head = new TextEncoder().encode(text + " ".repeat((8 - text.length % 8) % 8));
  const size = new BigUint64Array([BigInt(head.length)]);
  await fetch(`/out/${number}`, { method: "POST", body: new Blob([size, head, staging.getMappedRange()]) });
  for (const buffer of [inputs, outputs, staging]) buffer.destroy();
}
"""


def run_in_browser(python, text, functions, leaves):
    """As `run_on_gpu`, on `navigator.gpu`; `python` is the fixture `browser_python`, whose page it happens in."""
    types, count = result_leaves(functions), len(leaves[0])
    request = {
        "code": text + entry_point(functions),
        "results": count * len(types),
        "workgroups": -(-count // WORKGROUP),
        "words": words(leaves),
    }
    return typed(python.transfer(IN_PAGE, request, lambda view, _: np.frombuffer(view, np.uint32)), types, count)


def words(leaves):
    return np.concatenate(
        [leaf.astype(np.uint32) if leaf.dtype == bool else np.asarray(leaf).view(np.uint32) for leaf in leaves]
    )


def result_leaves(functions):
    return [leaf for function in functions for _, leaf in leaf_names(function.return_type)]


def typed(results, types, count):
    return [
        row != 0 if leaf.name == "bool" else row.view(DTYPES[leaf.name])
        for row, leaf in zip(results.reshape(len(types), count), types, strict=True)
    ]
