"""Graphs of ONNX become modules with the same outputs, are trained, and go back to files that ONNX's reference runs."""

import re

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import nn, ops
from optirs_web.errors import CheckpointError, UnsupportedError
from optirs_web.ops import calls

pytestmark = pytest.mark.usefixtures("onnx")


def floats(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def content(onnx, nodes, inputs, weights, opset=17, outputs=("y",)):
    """A file with this graph: nodes as (kind, inputs, outputs, attributes)."""
    helper, kind = onnx.helper, onnx.TensorProto
    made = [helper.make_node(one, *names, name=f"{one}_{at}", **more) for at, (one, *names, more) in enumerate(nodes)]
    kinds = {np.dtype(np.float32): kind.FLOAT, np.dtype(np.int64): kind.INT64, np.dtype(np.int32): kind.INT32}
    graph = helper.make_graph(
        made,
        "graph",
        [helper.make_tensor_value_info(name, kinds[input_.dtype], input_.shape) for name, input_ in inputs.items()],
        [helper.make_tensor_value_info(name, kind.FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(weight), name) for name, weight in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return model.SerializeToString()


def reference(source, *inputs):
    """Return the outputs of ONNX's own implementation."""
    from onnx.reference import ReferenceEvaluator

    run = ReferenceEvaluator(source)
    return run.run(None, dict(zip(run.input_names, inputs, strict=True)))


IMAGES = floats(2, 4, 6, 5)
ROWS = floats(3, 4)

# By name: opset, inputs, weights, nodes. All from x to y.
GRAPHS = {
    "MatMul": (13, [ROWS], {"w": floats(4, 2)}, [("MatMul", ["x", "w"], ["y"], {})]),
    "MatMul of batches": (13, [floats(2, 3, 4)], {"w": floats(2, 4, 5)}, [("MatMul", ["x", "w"], ["y"], {})]),
    "Gemm": (13, [ROWS], {"w": floats(4, 2), "b": floats(2)}, [("Gemm", ["x", "w", "b"], ["y"], {})]),
    "Gemm with all attributes": (
        13,
        [floats(4, 3)],
        {"w": floats(2, 4), "b": floats(1, 2)},
        [("Gemm", ["x", "w", "b"], ["y"], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0})],
    ),
    "arithmetic": (
        14,
        [ROWS],
        {"a": floats(4), "b": floats(3, 1), "half": np.float32(0.5)},
        [
            ("Add", ["x", "a"], ["s"], {}),
            ("Sub", ["s", "b"], ["d"], {}),
            ("Mul", ["d", "half"], ["p"], {}),
            ("Div", ["x", "half"], ["q"], {}),
            ("Neg", ["q"], ["n"], {}),
            ("Add", ["p", "n"], ["y"], {}),
        ],
    ),
    **{
        kind: (20, [ROWS], {}, [(kind, ["x"], ["y"], {})])
        for kind in ("Relu", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "LeakyRelu", "Erf", "Gelu", "Exp", "Identity")
    },
    **{kind: (13, [np.abs(ROWS) + 0.5], {}, [(kind, ["x"], ["y"], {})]) for kind in ("Log", "Sqrt")},
    "Pow": (15, [np.abs(ROWS)], {"n": np.float32(2.5)}, [("Pow", ["x", "n"], ["y"], {})]),
    "Softmax along an axis": (13, [ROWS], {}, [("Softmax", ["x"], ["y"], {"axis": 0})]),
    "Gelu by tanh": (20, [ROWS], {}, [("Gelu", ["x"], ["y"], {"approximate": "tanh"})]),
    "Conv": (
        13,
        [IMAGES],
        {"w": floats(6, 2, 3, 2), "b": floats(6)},
        [("Conv", ["x", "w", "b"], ["y"], {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 0], "dilations": [1, 2]})],
    ),
    "Conv with a border on one side": (
        13,
        [IMAGES],
        {"w": floats(3, 4, 3, 3)},
        [("Conv", ["x", "w"], ["y"], {"pads": [0, 1, 2, 1]})],
    ),
    "Conv of the same size": (
        13,
        [IMAGES],
        {"w": floats(3, 4, 3, 2)},
        [("Conv", ["x", "w"], ["y"], {"auto_pad": "SAME_UPPER", "strides": [2, 2]})],
    ),
    "Conv over one axis": (
        13,
        [floats(2, 3, 8)],
        {"w": floats(4, 3, 3)},
        [("Conv", ["x", "w"], ["y"], {"pads": [1, 1]})],
    ),
    "MaxPool": (
        13,
        [IMAGES],
        {},
        [("MaxPool", ["x"], ["y"], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]})],
    ),
    "AveragePool": (
        19,
        [IMAGES],
        {},
        [("AveragePool", ["x"], ["y"], {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "strides": [2, 1]})],
    ),
    "GlobalAveragePool": (13, [IMAGES], {}, [("GlobalAveragePool", ["x"], ["y"], {})]),
    "BatchNormalization": (
        15,
        [IMAGES],
        {"s": floats(4), "b": floats(4), "m": floats(4), "v": np.abs(floats(4)) + 0.1},
        [("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], {"epsilon": 1e-3})],
    ),
    "LayerNormalization": (
        17,
        [IMAGES],
        {"s": floats(6, 5), "b": floats(6, 5)},
        [("LayerNormalization", ["x", "s", "b"], ["y"], {"axis": -2})],
    ),
    "shapes": (
        13,
        [IMAGES],
        {"shape": np.array([0, 2, -1]), "axes": np.array([1]), "gone": np.array([1])},
        [
            ("Reshape", ["x", "shape"], ["r"], {}),
            ("Transpose", ["r"], ["t"], {"perm": [2, 0, 1]}),
            ("Unsqueeze", ["t", "axes"], ["u"], {}),
            ("Squeeze", ["u", "gone"], ["s"], {}),
            ("Concat", ["s", "t"], ["c"], {"axis": 1}),
            ("Flatten", ["c"], ["y"], {"axis": 2}),
        ],
    ),
    "a shape that is computed": (
        13,
        [IMAGES],
        {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])},
        [
            ("Shape", ["x"], ["s"], {}),
            ("Gather", ["s", "zero"], ["n"], {}),
            ("Unsqueeze", ["n", "axes"], ["u"], {}),
            ("Cast", ["u"], ["i"], {"to": 7}),
            ("Concat", ["i", "rest"], ["shape"], {"axis": 0}),
            ("Reshape", ["x", "shape"], ["y"], {}),
        ],
    ),
    "ReduceMean, axes as an attribute": (13, [IMAGES], {}, [("ReduceMean", ["x"], ["y"], {"axes": [1, -1]})]),
    "ReduceMean, axes as an input": (
        18,
        [IMAGES],
        {"axes": np.array([2])},
        [("ReduceMean", ["x", "axes"], ["y"], {"keepdims": 0})],
    ),
    "ReduceSum of all": (13, [IMAGES], {}, [("ReduceSum", ["x"], ["y"], {"keepdims": 0})]),
    "Gather of rows": (13, [np.array([[1, 0], [2, 2]])], {"w": floats(3, 4)}, [("Gather", ["w", "x"], ["y"], {})]),
    "Gather along an axis": (
        13,
        [ROWS],
        {"i": np.array([3, -4])},
        [("Gather", ["x", "i"], ["y"], {"axis": 1})],
    ),
    "Dropout and Cast": (
        13,
        [ROWS],
        {},
        [("Dropout", ["x"], ["d"], {}), ("Cast", ["d"], ["y"], {"to": 1})],
    ),
}


def made(onnx, name):
    opset, values, weights, nodes = GRAPHS[name]
    if name == "constants":
        return None
    return content(onnx, nodes, {"x": values[0]}, weights, opset), values


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.filterwarnings("ignore:int64 data becomes")
def test_a_graph_computes_here_what_the_reference_computes(name, onnx, device):
    source, values = made(onnx, name)
    got = ow.interop.onnx.load(source, device=device)(*values)
    (expected,) = reference(source, *values)
    assert got.numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_constants_are_held_and_opsets_are_read(opset, onnx):
    def constant(value, name):
        return ("Constant", [], [name], {"value": onnx.numpy_helper.from_array(value)})

    nodes = [constant(np.float32(2.0), "two"), constant(floats(4), "row"), ("Mul", ["x", "two"], ["m"], {})]
    nodes += [("Constant", [], ["half"], {"value_float": 0.5}), ("Add", ["m", "row"], ["s"], {})]
    source = content(onnx, [*nodes, ("Mul", ["s", "half"], ["y"], {})], {"x": ROWS}, {}, opset)
    model = ow.interop.onnx.load(source, device="cpu")
    assert model(ROWS).numpy() == pytest.approx(reference(source, ROWS)[0], rel=1e-6)
    assert not list(model.parameters())


# Errors.


def test_what_is_not_supported_is_refused_with_node_and_operation(onnx):
    load = ow.interop.onnx.load
    with pytest.raises(
        UnsupportedError, match=r"node 'LSTM_0' \(LSTM\): this operation is not supported; there are Add, "
    ):
        load(content(onnx, [("LSTM", ["x", "w", "r"], ["y"], {})], {"x": ROWS}, {"w": ROWS, "r": ROWS}))
    with pytest.raises(UnsupportedError, match=r"model has opset 12; 13 to 21 are supported"):
        load(content(onnx, [("Relu", ["x"], ["y"], {})], {"x": ROWS}, {}, opset=12))
    model = load(
        content(onnx, [("MaxPool", ["x"], ["y"], {"kernel_shape": [2, 2], "ceil_mode": 1})], {"x": IMAGES}, {}), "cpu"
    )
    with pytest.raises(UnsupportedError, match=r"node 'MaxPool_0' \(MaxPool\): ceil_mode=1 is not supported"):
        model(IMAGES)
    with pytest.raises(UnsupportedError, match="'w' is of float64; float32 is needed"):
        load(content(onnx, [("MatMul", ["x", "w"], ["y"], {})], {"x": ROWS}, {"w": np.eye(4)}))
    model = load(content(onnx, [("Cast", ["x"], ["y"], {"to": 11})], {"x": ROWS}, {}), "cpu")
    with pytest.raises(UnsupportedError, match=r"node 'Cast_0' \(Cast\): a cast from float32 to type 11"):
        model(ROWS)
    model = load(content(onnx, [("MatMul", ["x", "w"], ["y"], {})], {"x": ROWS}, {"w": floats(5, 5)}), "cpu")
    with pytest.raises(ow.errors.ShapeError, match=r"^node 'MatMul_0' \(MatMul\): "):
        model(ROWS)
    with pytest.raises(TypeError, match="the graph has the inputs x, and 2 were given"):
        model(ROWS, ROWS)


def test_damaged_files_are_refused_wherever_they_are_cut(onnx, tmp_path):
    source, _ = made(onnx, "Gemm")
    for length in (0, 1, 5, len(source) // 3, len(source) // 2, len(source) - 30, len(source) - 8, len(source) - 1):
        with pytest.raises(CheckpointError, match=r"is not an ONNX file, or is cut off|is damaged"):
            ow.interop.onnx.load(source[:length])
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x00" * 100)
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        ow.interop.onnx.load(path)
    with pytest.raises(FileNotFoundError):
        ow.interop.onnx.load(tmp_path / "none.onnx")
    source = content(onnx, [("Relu", ["z"], ["y"], {})], {"x": ROWS}, {})
    with pytest.raises(CheckpointError, match="nothing computes 'z'"):
        ow.interop.onnx.load(source)


ADD = ("Add", ["x", "w"], ["y"], {})
AGAINST_THE_RULES = {
    "a circle": ([("Add", ["x", "y"], ["z"], {}), ("Neg", ["z"], ["y"], {})], "topologically sorted"),
    "two values of one name": ([ADD, ("Neg", ["x"], ["y"], {})], "single static assignment .* 'y'"),
    "a value with a weight's name": ([("Neg", ["x"], ["w"], {}), ADD], "single static assignment .* 'w'"),
    "an attribute that there is not": ([(*ADD[:3], {"axis": 1})], "Unrecognized attribute: axis"),
    "an input too few": ([("Add", ["x"], ["y"], {})], "input size 1 not in range"),
    "no output": ([ADD, ("Neg", ["x"], [], {})], "output size 0 not in range"),
}


@pytest.mark.parametrize("name", AGAINST_THE_RULES)
def test_graphs_against_the_rules_of_onnx_are_refused(name, onnx):
    nodes, why = AGAINST_THE_RULES[name]
    with pytest.raises(CheckpointError, match=f"the model is damaged: .*{why}"):
        ow.interop.onnx.load(content(onnx, nodes, {"x": ROWS}, {"w": floats(4)}), device="cpu")


def test_weights_whose_names_become_the_same_stay_apart(onnx):
    weights = {"a_b_2": np.float32([100]), "a.b": np.float32([10]), "a_b": np.float32([1])}
    nodes = [("Add", [at, name], [to], {}) for at, name, to in zip("xtu", weights, "tuy", strict=True)]
    model = ow.interop.onnx.load(content(onnx, nodes, {"x": np.zeros(1, np.float32)}, weights), device="cpu")
    assert model(np.zeros(1, np.float32)).item() == 111
    assert len(list(model.parameters())) == 3


def test_integers_are_divided_as_onnx_does_and_never_wrapped(onnx):
    def run(nodes, **weights):
        source = content(onnx, nodes, {"x": np.zeros(2, np.float32)}, {k: np.array([v]) for k, v in weights.items()})
        return ow.interop.onnx.load(source, device="cpu")(np.zeros(2, np.float32))

    division = [("Div", ["a", "b"], ["q"], {}), ("Cast", ["q"], ["f"], {"to": 1}), ("Add", ["x", "f"], ["y"], {})]
    assert run(division, a=-7, b=2).tolist() == [-3, -3]
    with pytest.raises(UnsupportedError, match=r"node 'Div_0' \(Div\): integers are divided by zero"):
        run(division, a=7, b=0)
    with pytest.raises(UnsupportedError, match=r"node 'Gather_0' \(Gather\): .* does not fit int32"):
        run([("Gather", ["x", "at"], ["y"], {})], at=2**32 + 1)


def test_want_of_memory_stays_what_it_is_and_has_the_node(onnx, device, limited):
    nodes = [("Unsqueeze", ["x", "axis"], ["z"], {}), ("Add", ["x", "z"], ["y"], {})]
    model = ow.interop.onnx.load(content(onnx, nodes, {"x": floats(1 << 10)}, {"axis": np.array([1])}), device=device)
    x = ow.tensor(floats(1 << 10), device=device)
    limited(1 << 20)
    with pytest.raises(ow.errors.OutOfDeviceMemoryError) as caught:
        model(x)
    assert caught.value.__notes__ == ["in node 'Add_1' (Add)"]


def test_more_weights_than_a_file_can_have_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(ow.interop.onnx, "_MOST_BYTES", 30)
    path = tmp_path / "large.onnx"
    with pytest.raises(UnsupportedError, match=r"at most 30 bytes, and the weights are 32: .*save_state_dict"):
        ow.interop.onnx.save(nn.Linear(3, 2, device="cpu"), ow.ones((1, 3), device="cpu"), path)
    assert not path.exists()


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'optirs-web\[onnx\]'"):
        ow.interop.onnx.load(b"")


# There and back.


def image_model():
    ow.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, device="cpu"),
        nn.BatchNorm2d(4, device="cpu"),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding="same", bias=False, device="cpu"),
        nn.GELU(),
        nn.AvgPool2d(2, stride=1, padding=1),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.LayerNorm(6, device="cpu"),
        nn.Linear(6, 3, device="cpu"),
        nn.Softmax(dim=-1),
    )


class Tokens(nn.Module):
    """A module that uses operations of tensors, including batches of products."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8, device="cpu")
        self.turn = nn.Linear(8, 8, device="cpu")
        self.head = nn.Linear(8, 11, bias=False, device="cpu")
        self.head.weight = self.table.weight

    def forward(self, tokens):
        x = self.table(tokens)
        scores = (self.turn(x) @ x.transpose(1, 2)) / 8**0.5
        mixed = scores.softmax(-1) @ x + ow.tensor(np.full(8, 0.5, np.float32), device="cpu")
        pooled = ops.concat([mixed.mean(axis=1), (mixed * mixed).sum(axis=1, keepdims=True).squeeze(1)], axis=-1)
        return self.head(mixed), pooled.log_softmax(-1).reshape(tokens.shape[0], 4, 4)


@pytest.mark.parametrize("name", ["images", "tokens"])
@pytest.mark.filterwarnings("ignore:int64 data becomes")
def test_a_module_is_written_as_what_it_computes(name, onnx, tmp_path):
    ow.manual_seed(0)
    model = image_model() if name == "images" else Tokens()
    examples = {"images": floats(2, 1, 8, 8), "tokens": np.arange(10, dtype=np.int32).reshape(2, 5)}
    more = {"images": floats(5, 1, 8, 8, seed=1), "tokens": np.arange(15, dtype=np.int32).reshape(3, 5) % 11}
    path = tmp_path / "model.onnx"
    ow.interop.onnx.save(model, examples[name], path)
    again = ow.interop.onnx.load(path, device="cpu")
    for values in (examples[name], more[name]):  # the batch may have another length
        expected = model.eval()(ow.tensor(values, device="cpu"))
        got = again(values)
        for tensor, its, other in zip(
            *(_several(one) for one in (expected, got, reference(str(path), values))), strict=True
        ):
            assert its.numpy() == pytest.approx(tensor.numpy(), rel=1e-5, abs=1e-6)
            assert other == pytest.approx(tensor.numpy(), rel=1e-5, abs=1e-6)
    assert {name.replace(".", "_") for name, _ in model.named_parameters()} == dict(again.named_parameters()).keys()
    assert not list(tmp_path.glob(".*"))


def _several(given):
    return given if isinstance(given, (list, tuple)) else [given]


def test_a_loaded_model_is_trained_and_written_back(onnx, device, tmp_path):
    ow.manual_seed(0)
    first = nn.Sequential(nn.Linear(2, 8, device=device), nn.Tanh(), nn.Linear(8, 2, device=device))
    path = tmp_path / "model.onnx"
    ow.interop.onnx.save(first, ow.ones((4, 2), device=device), path)
    model = ow.interop.onnx.load(path, device=device)
    x = floats(64, 2)
    labels = (x[:, 0] > x[:, 1]).astype(np.int32)
    optimizer = ow.optim.AdamW(model.parameters(), lr=0.05)

    def train_step(x, labels):
        optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device)
    losses = [step(x, labels).item() for _ in range(40)]
    assert losses[-1] < 0.3 * losses[0]
    ow.interop.onnx.save(model, x, path)
    (got,) = reference(str(path), x)
    assert got == pytest.approx(model(x).numpy(), rel=1e-5, abs=1e-5)
    assert (got.argmax(1) == labels).mean() > 0.9


def test_what_has_no_counterpart_is_named(tmp_path):
    class Sorted(nn.Module):
        def forward(self, x):
            return ops.flip(x)

    path, placed = tmp_path / "model.onnx", calls.place
    with pytest.raises(UnsupportedError, match="'flip' cannot be written as ONNX; there are adaptive_avg_pool2d, "):
        ow.interop.onnx.save(Sorted(), ow.ones((2, 2), device="cpu"), path)
    assert not path.exists()
    assert calls.place is placed


def with_external(onnx, location, *, in_constant=False):
    """The content of a model that adds values of another file."""
    values = onnx.numpy_helper.from_array(floats(4), "w")
    if in_constant:
        raw = content(
            onnx, [("Constant", (), ("w",), {"value": values}), ("Add", ("x", "w"), ("y",), {})], {"x": floats(4)}, {}
        )
    else:
        raw = content(onnx, [("Add", ("x", "w"), ("y",), {})], {"x": floats(4)}, {"w": floats(4)})
    model = onnx.load_model_from_string(raw)
    tensor = model.graph.node[0].attribute[0].t if in_constant else model.graph.initializer[0]
    bytes_of = tensor.raw_data
    onnx.external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    return model.SerializeToString(), bytes_of


@pytest.mark.parametrize("in_constant", [False, True], ids=["weight", "constant"])
def test_values_in_another_file_are_read_from_the_folder_of_the_model(onnx, tmp_path, in_constant):
    raw, values = with_external(onnx, "inner/w.bin", in_constant=in_constant)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "w.bin").write_bytes(values)
    (tmp_path / "model.onnx").write_bytes(raw)
    model = ow.interop.onnx.load(tmp_path / "model.onnx", device="cpu")
    np.testing.assert_array_equal(model(floats(4)).numpy(), 2 * floats(4))


@pytest.mark.parametrize("in_constant", [False, True], ids=["weight", "constant"])
def test_bytes_read_no_file(onnx, tmp_path, monkeypatch, in_constant):
    raw, values = with_external(onnx, "w.bin", in_constant=in_constant)
    (tmp_path / "w.bin").write_bytes(values)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"the model has the values of 'w' in another file, 'w\.bin'"):
        ow.interop.onnx.load(raw, device="cpu")


@pytest.mark.parametrize(
    "location",
    ["../w.bin", "inner/../../w.bin", "/etc/hostname", "", "C:w.bin", "..\\w.bin", "a\0b", "link", "linked/w.bin"],
)
def test_values_outside_the_folder_of_the_model_are_not_read(onnx, tmp_path, location):
    raw, values = with_external(onnx, location)
    (tmp_path / "w.bin").write_bytes(values)
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "w.bin")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "model.onnx").write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"has the values of 'w' in '.*', which is not in its own"):
        ow.interop.onnx.load(folder / "model.onnx", device="cpu")


def test_values_in_a_file_that_is_missing_or_short_are_refused(onnx, tmp_path):
    raw, values = with_external(onnx, "w.bin")
    (tmp_path / "model.onnx").write_bytes(raw)
    with pytest.raises(CheckpointError, match="which does not exist"):
        ow.interop.onnx.load(tmp_path / "model.onnx", device="cpu")
    (tmp_path / "w.bin").write_bytes(values[:-1])
    with pytest.raises(CheckpointError, match="is damaged"):
        ow.interop.onnx.load(tmp_path / "model.onnx", device="cpu")


def test_a_bool_of_any_byte_but_0_is_true(onnx):
    odd = onnx.numpy_helper.from_array(np.array([True, False, True]), "c")
    odd.raw_data = bytes([2, 0, 255])
    raw = content(onnx, [("Cast", ("c",), ("y",), {"to": onnx.TensorProto.INT64})], {"x": floats(3)}, {})
    model = onnx.load_model_from_string(raw)
    model.graph.initializer.append(odd)
    assert ow.interop.onnx.load(model.SerializeToString(), device="cpu")(floats(3)).tolist() == [1, 0, 1]
