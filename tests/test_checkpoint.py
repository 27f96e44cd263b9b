"""Checkpoints: bit-exact resuming, files that are damaged or foreign, writes that are killed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from requirements import missing

import optirs_web as ow
from optirs_web.errors import CheckpointError
from optirs_web.interop.safetensors import Entry, load, parts, save_file

DIGEST = "optirs_web.sha256"


def make_run(device, optimizer="AdamW", **options):
    rng = np.random.default_rng(0)
    params = {
        name: ow.Parameter(rng.standard_normal(shape).astype(np.float32), device=device)
        for name, shape in {"w": (20, 30), "b": (30,), "scale": ()}.items()
    }
    return params, getattr(ow.optim, optimizer)(list(params.values()), **options)


def train(params, optimizer, first, last):
    for step in range(first, last):
        rng = np.random.default_rng(step)
        optimizer.step(grads=[rng.standard_normal(param.shape).astype(np.float32) for param in params.values()])


def snapshot(params, optimizer):
    return {name: param.numpy() for name, param in params.items()}, optimizer.state_dict()


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("AdamW", {"amsgrad": True}), ("Adam", {}), ("SGD", {"momentum": 0.9}), ("SGD", {})],
    ids=["amsgrad", "adam", "momentum", "sgd"],
)
def test_50_and_50_steps_equal_100_bit_for_bit(device, tmp_path, optimizer, options):
    params, opt = make_run(device, optimizer, lr=0.01, **options)
    train(params, opt, 0, 100)
    want = snapshot(params, opt)

    params, opt = make_run(device, optimizer, lr=0.01, **options)
    train(params, opt, 0, 50)
    path = tmp_path / "half.safetensors"
    ow.save_checkpoint(path, params, opt, {"epoch": 50})
    params, opt = make_run(device, optimizer, lr=0.5, **options)
    assert ow.load_checkpoint(path, params, opt) == {"epoch": 50}
    train(params, opt, 50, 100)
    np.testing.assert_equal(snapshot(params, opt), want)


def test_a_checkpoint_is_a_file_that_the_reference_library_reads(tmp_path):
    params, opt = make_run("cpu")
    train(params, opt, 0, 1)
    ow.save_checkpoint(tmp_path / "a", params, opt)
    theirs = safetensors.numpy.load_file(tmp_path / "a")
    np.testing.assert_array_equal(theirs["param.w"], params["w"].numpy())
    assert theirs["optimizer.2.exp_avg"].shape == ()

    safetensors.numpy.save_file({"x": np.arange(6.0, dtype=np.float32).reshape(2, 3)}, tmp_path / "b", {"k": "v"})
    tensors, metadata = load(tmp_path / "b")
    assert (tensors["x"].dtype, tensors["x"].shape, metadata) == ("F32", (2, 3), {"k": "v"})


def good_file(tmp_path):
    params, opt = make_run("cpu")
    train(params, opt, 0, 3)
    path = tmp_path / "good.safetensors"
    ow.save_checkpoint(path, params, opt)
    return path


def damaged(path, change):
    raw = bytearray(path.read_bytes())
    path.write_bytes(bytes(change(raw)))


def with_header(raw, change, *, digest=False):
    """The file with its header changed; without its digest, as a file of older versions, unless it is to stay."""
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    if not digest:
        del header["__metadata__"][DIGEST]
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + raw[8 + length :]


def renamed(old, new):
    return lambda header: header.update({new: header.pop(old)})


def reshaped(header):
    header["param.w"]["shape"] = [30, 20]


QUOTED_U8 = '"U8"'


def entry(shape="[1]", offsets="[0,4]", dtype='"F32"'):
    return f'{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}'


def of_x(*options, **named):
    return f'{{"x":{entry(*options, **named)}}}'


HOSTILE = {
    "a name twice": (f'{{"x":{entry()},"x":{entry()}}}', "the name 'x' occurs twice"),
    "a long name twice": (f'{{"{"x" * 10**6}":{entry()},"{"x" * 10**6}":{entry()}}}', "the name 'xxx.*…"),
    "a bool as a size": (of_x("[true]"), r"'x' has the shape \[True\]"),
    "a negative size": (of_x("[-1]"), r"'x' has the shape \[-1\]"),
    "a fraction as a size": (of_x("[1.0]"), r"'x' has the shape \[1.0\]"),
    "an exponent as a size": (of_x("[1e400]"), r"'x' has the shape \[inf\]"),
    "a number as a shape": (of_x("1"), "'x' has the shape 1 and"),
    "a size of 2**61": (of_x(f"[0,{2**61}]", "[0,0]"), r"'x' has the shape \[0, 2305843009213693952\]"),
    "sizes of 2**62 together": (of_x(f"[0,{2**31},{2**31}]", "[0,0]"), "'x' is too large"),
    "400 sizes of 4,000 digits": (of_x(f"[{','.join(['9' * 4000] * 400)}]"), "a number of 4,000 digits"),
    "10,000 sizes of 2**59": (of_x(f"[{','.join([str(2**59)] * 10**4)}]"), r"'x' has the shape \[5764.*…"),
    "65 axes": (of_x(f"[{','.join(['1'] * 65)}]"), r"'x' has the shape \[1, 1"),
    "three offsets": (of_x("[1]", "[0,4,4]"), r"the offsets \[0, 4, 4\]"),
    "offsets in reverse": (of_x("[1]", "[4,0]"), "does not fill the bytes 4 to 0 of 4"),
    "offsets behind the end": (of_x("[1]", f"[{2**59},{2**59 + 4}]"), "does not fill the bytes 576,460"),
    "more bytes than the shape": (of_x("[0]"), "does not fill the bytes 0 to 4 of 4"),
    "a tensor inside another": (f'{{"x":{entry()},"y":{entry("[2]", "[2,4]", QUOTED_U8)}}}', "overlap"),
    "a gap": (of_x("[2]", "[2,4]", QUOTED_U8), "leave gaps at byte 0"),
    "an unknown dtype": (of_x(dtype='"F4"'), "'x' has an unknown dtype, 'F4'"),
    "a list as the dtype": (of_x(dtype="[[]]"), r"'x' has an unknown dtype, \[\[\]\]"),
    "no dtype": ('{"x":{"shape":[1],"data_offsets":[0,4]}}', "'x' lacks its dtype"),
    "a number as a tensor": ('{"x":1}', "'x' lacks its dtype"),
    "a list": ("[]", "it is not an object"),
    "NaN": (of_x("[NaN]"), "NaN is not JSON"),
    "UTF-16": (of_x().encode("utf-16"), "can't decode byte"),
    "half of a surrogate pair": (f'{{"\\ud800":{entry()}}}', "surrogates not allowed"),
    "brackets in brackets": ("[" * 10**6, "its header cannot be read"),
    "objects in objects": ('{"x":' * 10**5, "its header cannot be read"),
    "metadata that is a list": (f'{{"__metadata__":[1],"x":{entry()}}}', "its metadata is not strings by name"),
    "metadata of numbers": (f'{{"__metadata__":{{"a":1}},"x":{entry()}}}', "its metadata is not strings by name"),
}


@pytest.mark.parametrize(("header", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_header_that_other_readers_could_take_otherwise_is_refused_at_once_and_briefly(header, message):
    text = header.encode() if isinstance(header, str) else header
    begin = time.process_time()
    with pytest.raises(CheckpointError, match=message) as refused:
        load(len(text).to_bytes(8, "little") + text + bytes(4))
    assert time.process_time() - begin < 1
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "source",
    [
        lambda raw: bytearray(raw),
        lambda raw: memoryview(raw).cast("B", (2, len(raw) // 2)),
        lambda raw: memoryview(b"".join(bytes([byte, 0]) for byte in raw))[::2],
    ],
    ids=["bytearray", "of two axes", "of every second byte"],
)
def test_the_content_of_a_file_is_bytes_of_any_form(source):
    raw = b"".join(parts({"x": Entry("F32", (2,), memoryview(bytes(8)))}, {"a": "b"}))
    assert load(source(raw))[1] == {"a": "b"}


def test_no_tensor_takes_the_place_of_the_metadata(tmp_path):
    with pytest.raises(CheckpointError, match="no tensor of the name '__metadata__'"):
        save_file(tmp_path / "x", {"__metadata__": Entry("F32", (1,), memoryview(bytes(4)))}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_or_a_device_is_written_to_and_not_replaced_by_a_file(tmp_path):
    if not hasattr(os, "mkfifo"):
        missing("linux", "the system has no named pipes")
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        save_file(tmp_path / "pipe", {"x": Entry("F32", (1,), memoryview(bytes(4)))}, {})
        assert load(reader.read())[0]["x"].shape == (1,)
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


def notes_with(**changes):
    def change(header):
        notes = json.loads(header["__metadata__"]["optirs_web"])
        notes.update(changes)
        header["__metadata__"]["optirs_web"] = json.dumps(notes)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-1], "damaged|cut off"),
        (lambda raw: raw[: len(raw) // 2], "damaged|cut off"),
        (lambda raw: raw[:100], "cut off"),
        (lambda raw: raw[:5], "not a safetensors file"),
        (lambda raw: b"", "not a safetensors file"),
        (lambda raw: raw + b"x", "damaged"),
        (lambda raw: b"PK\x03\x04" + raw, "not a safetensors file"),
        (lambda raw: b"\xff" * len(raw), "not a safetensors file"),
        (lambda raw: (3).to_bytes(8, "little") + b"[1]", "not a safetensors file"),
        (
            lambda raw: with_header(raw, lambda header: header.pop("__metadata__")),
            "not a checkpoint of optirs-web",
        ),
        (
            lambda raw: with_header(raw, renamed("param.w", "param.v")),
            "another model: only one of the two has 'v', 'w'",
        ),
        (lambda raw: with_header(raw, reshaped), r"'w' is F32 of shape \(30, 20\)"),
        (lambda raw: with_header(raw, renamed("optimizer.0.exp_avg", "optimizer.0.foo")), "has foo"),
        (lambda raw: with_header(raw, renamed("optimizer.0.exp_avg", "optimizer.x.exp_avg")), "damaged"),
        (
            lambda raw: with_header(raw, renamed("optimizer.0.exp_avg", "optimizer.7.exp_avg")),
            "which no group holds",
        ),
        (
            lambda raw: with_header(raw, renamed("optimizer.0.step", "optimizer.1.exp_avg_s")),
            "no usable 'step'|has exp_avg_s",
        ),
        (
            lambda raw: with_header(raw, notes_with(optimizer={"type": "SGD", "param_groups": []})),
            "the state of 'SGD'",
        ),
        (
            lambda raw: with_header(raw, notes_with(optimizer={"type": "AdamW", "param_groups": []})),
            "different number",
        ),
        (lambda raw: with_header(raw, notes_with(extra=None)), "notes cannot be read"),
    ],
)
def test_a_damaged_or_foreign_file_changes_nothing(tmp_path, change, message):
    path = good_file(tmp_path)
    damaged(path, change)
    params, opt = make_run("cpu", lr=0.1)
    train(params, opt, 10, 12)
    before = snapshot(params, opt)
    with pytest.raises(CheckpointError, match=message):
        ow.load_checkpoint(path, params, opt)
    np.testing.assert_equal(snapshot(params, opt), before)


def overwritten(place):
    """One byte changed: of the numbers that begin at the end of the header."""

    def change(raw):
        raw[8 + int.from_bytes(raw[:8], "little") + place] ^= 1
        return raw

    return change


def edited(change):
    return lambda raw: with_header(raw, change, digest=True)


def swapped(header):
    first, second = header["optimizer.0.exp_avg"], header["optimizer.0.exp_avg_sq"]
    header.update({"optimizer.0.exp_avg": second, "optimizer.0.exp_avg_sq": first})


@pytest.mark.parametrize(
    "change",
    [
        overwritten(0),
        overwritten(-1000),
        edited(swapped),
        edited(reshaped),
        edited(notes_with(extra={"epoch": 9})),
        edited(lambda header: header["__metadata__"].update({DIGEST: "0" * 64})),
    ],
    ids=["first number", "last numbers", "two slots swapped", "shape", "extra", "digest"],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda path, *_: ow.checkpoint_extra(path),
        ow.load_checkpoint,
        lambda path, *run: ow.load_checkpoint(path.read_bytes(), *run),
    ],
    ids=["checkpoint_extra", "load_checkpoint", "load_checkpoint of bytes"],
)
def test_a_checkpoint_that_was_changed_does_not_match_its_digest(tmp_path, change, read):
    path = good_file(tmp_path)
    damaged(path, change)
    params, opt = make_run("cpu", lr=0.1)
    before = snapshot(params, opt)
    with pytest.raises(CheckpointError, match="damaged or was edited: its content does not match the SHA-256"):
        read(path, params, opt)
    np.testing.assert_equal(snapshot(params, opt), before)


def test_the_digest_is_the_sha256_of_what_the_documentation_says(tmp_path):
    path = good_file(tmp_path)
    with safetensors.safe_open(path, "np") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in sorted(file.keys())}
    digest = metadata.pop(DIGEST)
    about = {"metadata": metadata, "tensors": {name: ["F32", list(tensor.shape)] for name, tensor in tensors.items()}}
    content = b"".join(tensor.tobytes() for tensor in tensors.values())
    text = json.dumps(about, sort_keys=True, separators=(",", ":")).encode()
    assert hashlib.sha256(text + content).hexdigest() == digest


@pytest.mark.parametrize("saved", ["without a digest", "again by the reference library"])
def test_a_checkpoint_loads(tmp_path, saved):
    params, opt = make_run("cpu")
    train(params, opt, 0, 3)
    path = tmp_path / "run.safetensors"
    ow.save_checkpoint(path, params, opt, {"epoch": 3})
    if saved == "without a digest":
        damaged(path, lambda raw: with_header(raw, lambda header: None))
    else:
        with safetensors.safe_open(path, "np") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        safetensors.numpy.save_file(dict(reversed(tensors.items())), path, metadata)
    others = make_run("cpu")
    assert ow.load_checkpoint(path, *others) == {"epoch": 3}
    np.testing.assert_equal(snapshot(*others), snapshot(params, opt))


def test_an_option_out_of_range_in_a_file_changes_nothing(tmp_path):
    path = good_file(tmp_path)
    params, opt = make_run("cpu")
    groups = opt.state_dict()["param_groups"]
    groups[0]["lr"] = -1.0
    damaged(path, lambda raw: with_header(raw, notes_with(optimizer={"type": "AdamW", "param_groups": groups})))
    before = snapshot(params, opt)
    with pytest.raises(CheckpointError, match="Invalid learning rate"):
        ow.load_checkpoint(path, params, opt)
    np.testing.assert_equal(snapshot(params, opt), before)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (lambda params, opt: ([*params.values()],), TypeError, "parameters by name"),
        (lambda params, opt: ({"w": ow.ones((1,), device="cpu")},), TypeError, "parameters by name"),
        (lambda params, opt: ({"w": params["w"]}, opt), ValueError, "not among those to save"),
        (lambda params, opt: (params, {"epoch": 1}), TypeError, "pass `extra` by name"),
        (lambda params, opt: (params, opt, {"loss": np.float32(1)}), TypeError, "JSON can hold"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        ow.save_checkpoint(tmp_path / "x", *arguments(*make_run("cpu")))
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        ow.save_checkpoint(tmp_path / "no" / "x", make_run("cpu")[0])


@pytest.mark.parametrize(
    ("parameters", "received"),
    [
        (lambda model: model, "Linear"),
        (lambda model: model.state_dict(), "'weight' as Tensor"),
        (lambda model: [*model.parameters()], "list"),
        (lambda model: None, "NoneType"),
    ],
)
def test_what_is_not_parameters_by_name_is_refused_on_both_ways_and_changes_nothing(tmp_path, parameters, received):
    def run():
        model = ow.nn.Linear(3, 2, device="cpu")
        return model, ow.optim.AdamW(model.parameters())

    def contents(model, opt):
        return [param.numpy() for param in model.parameters()], opt.state_dict()

    path = tmp_path / "x.safetensors"
    saved, its_opt = run()
    its_opt.step(grads=[ow.ones(param.shape, device="cpu") for param in saved.parameters()])
    ow.save_checkpoint(path, saved.state_dict(keep_vars=True), its_opt)
    other, other_opt = run()
    before = contents(other, other_opt)
    message = rf"by name, not {received}: pass model\.state_dict\(keep_vars=True\), dict\(model\.named_parameters\(\)\)"
    with pytest.raises(TypeError, match=message):
        ow.load_checkpoint(path, parameters(other), other_opt)
    np.testing.assert_equal(contents(other, other_opt), before)
    with pytest.raises(TypeError, match=message):
        ow.save_checkpoint(path, parameters(saved), its_opt)
    ow.load_checkpoint(path, dict(other.named_parameters()), other_opt)
    np.testing.assert_equal(contents(other, other_opt), contents(saved, its_opt))


def test_tensors_without_elements_are_saved_and_loaded(tmp_path):
    params = {"empty": ow.Parameter(np.zeros((0, 3), np.float32), device="cpu"), "w": ow.Parameter([1.0], device="cpu")}
    opt = ow.optim.Adam(list(params.values()))
    opt.step(grads=[np.zeros((0, 3), np.float32), [1.0]])
    ow.save_checkpoint(tmp_path / "x", params, opt)
    ow.load_checkpoint(tmp_path / "x", params, opt)
    assert opt.state_dict()["state"][0]["exp_avg"].shape == (0, 3)


def test_every_truncation_of_a_small_file_is_noticed(tmp_path):
    path = tmp_path / "small"
    save_file(path, {"x": Entry("F32", (2,), memoryview(bytes(8)))}, {"a": "b"})
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(CheckpointError):
            load(path)


def test_a_write_that_is_killed_leaves_the_old_file_whole(tmp_path):
    path = good_file(tmp_path)
    want = path.read_bytes()
    program = textwrap.dedent(
        """
        import sys
        from optirs_web.interop.safetensors import Entry, save_file
        entry = Entry("F32", (1 << 20,), memoryview(bytes(4 << 20)))
        print("ready", flush=True)
        while True:
            save_file(sys.argv[1], {str(number): entry for number in range(50)}, {})
        """
    )
    other = tmp_path / "other.safetensors"
    other.write_bytes(want)
    process = subprocess.Popen([sys.executable, "-c", program, str(other)], stdout=subprocess.PIPE)
    process.stdout.readline()
    while not any(name.name.endswith(".part") and name.stat().st_size > 8 << 20 for name in tmp_path.iterdir()):
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert other.read_bytes() == want


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path):
    path = good_file(tmp_path)
    want = path.read_bytes()

    class Unreadable:
        dtype, shape = "F32", (1,)

        @property
        def content(self):
            class Size:
                nbytes = 4

            return Size()

    with pytest.raises(TypeError):
        save_file(path, {"x": Unreadable()}, {})
    assert path.read_bytes() == want
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("state"), '"state" and "param_groups"'),
        (lambda d: d["param_groups"].append({"params": []}), "different number of parameter groups"),
        (lambda d: d["param_groups"][0]["params"].pop(), "doesn't match the size"),
        (lambda d: d["state"][0].update(exp_avg=np.zeros((2, 2), np.float32)), r"has the shape \(2, 2\)"),
        (lambda d: d["state"][0].update(step=-1.0), "step = -1.0"),
        (lambda d: d["state"][0].update(step=None), "no usable 'step'"),
        (lambda d: d["state"][0].update(exp_avg="abc"), "not a float32 array"),
        (lambda d: d["state"][0].update(velocity=1), "has velocity"),
        (lambda d: d["state"].update({9: {}}), "which no group holds"),
        (lambda d: d["param_groups"][0].update(lr=float("nan")), "Invalid learning rate"),
    ],
)
def test_a_state_dict_that_does_not_fit_changes_nothing(change, message):
    params, opt = make_run("cpu")
    train(params, opt, 0, 2)
    state_dict = opt.state_dict()
    change(state_dict)
    before = snapshot(params, opt)
    with pytest.raises(CheckpointError, match=message):
        opt.load_state_dict(state_dict)
    np.testing.assert_equal(snapshot(params, opt), before)
