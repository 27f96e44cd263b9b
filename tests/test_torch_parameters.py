"""Torch parameters that our optimizers take and refuse, and what torch puts around optimizers."""

import copy
import importlib
import io
import json
import pickle
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from processes import run_python
from requirements import missing
from torch_models import mlp, ours, trained

import optirs_web as ow
from optirs_web.errors import CheckpointError, UnsupportedError

__all__ = ["ours", "trained"]


# What can be no parameter.


def sharing(torch):
    whole = torch.zeros(8)
    return [torch.nn.Parameter(whole[:5]), torch.nn.Parameter(whole[4:])]


def on_xpu(torch):
    """Has the device and no values, so that it can be made without one."""
    with importlib.import_module("torch._subclasses").FakeTensorMode():
        return torch.empty(3, device="xpu")


REFUSED = {
    "xpu": (on_xpu, r"is on xpu:0; .*call model.cpu\(\)"),
    "half": (lambda torch: torch.zeros(3, dtype=torch.float16), r"torch.float16.*torch.autocast"),
    "bfloat16": (lambda torch: torch.zeros(3, dtype=torch.bfloat16), r"torch.bfloat16.*torch.autocast"),
    "double": (lambda torch: torch.zeros(3, dtype=torch.float64), r"torch.float64; float32 is needed"),
    "complex": (lambda torch: torch.zeros(3, dtype=torch.complex64), "view_as_real"),
    "meta": (lambda torch: torch.zeros(3, device="meta"), "meta tensor, without values"),
    "sparse": (lambda torch: torch.eye(3).to_sparse(), "layout torch.sparse_coo"),
    "shared": (lambda torch: torch.zeros(3).share_memory_(), "shared by processes"),
    "subclass": (lambda torch: torch.zeros(3).as_subclass(type("Other", (torch.Tensor,), {})), "is a Other"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_parameters_are_refused_by_name(kind, ours, torch):
    make, message = REFUSED[kind]
    inputs, other = make(torch).requires_grad_(), torch.nn.Parameter(torch.ones(2))
    place = other.data_ptr()
    with pytest.raises(UnsupportedError, match=f"^weight .*{message}"):
        ours.AdamW([("weight", inputs), ("other", other)])
    assert other.data_ptr() == place


def test_lazy_parameters_and_parameters_over_one_memory_are_refused(ours, torch):
    with pytest.raises(UnsupportedError, match="no shape yet"):
        ours.SGD(torch.nn.LazyLinear(3).parameters())
    with pytest.raises(UnsupportedError, match="parameter 0 of group 0 and parameter 1 of group 0 share memory"):
        ours.SGD(sharing(torch))


def test_torch_parameters_given_to_our_own_optimizers_are_named_with_what_takes_them(torch):
    theirs = r"torch\.nn\.parameter\.Parameter \(torch's: optirs_web\.interop\.torch\)"
    with pytest.raises(TypeError, match=theirs):
        ow.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)


def test_errors_are_those_of_torch_and_ours(ours, torch):
    weight = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match="empty parameter list"):
        ours.SGD([])
    with pytest.raises(ValueError, match="non-leaf"):
        ours.SGD([weight * 2])
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        ours.SGD([weight], lr=-1.0)
    with pytest.raises(UnsupportedError, match="differentiable"):
        ours.SGD([weight], differentiable=True)
    with pytest.raises(TypeError, match="did you mean 'weight_decay'"):
        ours.SGD([weight], weightdecay=1.0)
    with pytest.raises(ValueError, match=r"a tensor of one element, not of shape \(2,\)"):
        ours.SGD([weight], lr=torch.ones(2))
    optimizer = ours.SGD([weight])
    with pytest.raises(CheckpointError, match="a state dict must be a dict, not a NoneType"):
        optimizer.load_state_dict(None)
    with pytest.raises(AttributeError, match="'SGD' object has no attribute 'train'"):
        optimizer.train()
    optimizer.param_groups[0]["params"] = [torch.nn.Parameter(torch.ones(3))]
    with pytest.raises(UnsupportedError, match="in param_groups cannot be replaced"):
        optimizer.step()


def test_torch_is_imported_when_an_optimizer_is_asked_for_and_named_where_it_is_missing():
    program = """
import sys
import optirs_web as ow
ow.interop.torch, ow.interop.onnx
print({"torch", "onnx"} & {*sys.modules})
sys.modules["torch"] = None
try:
    ow.interop.torch.AdamW
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "set()"
    assert done.stdout.splitlines()[1].endswith("pip install torch")


def test_parameters_without_elements_without_axes_and_frozen_ones(ours, torch):
    empty, number, frozen = (torch.nn.Parameter(torch.ones(shape)) for shape in ((0, 3), (), (2,)))
    frozen.requires_grad_(False)
    optimizer = ours.AdamW([empty, number, frozen], lr=0.5, weight_decay=0.0)
    (empty.sum() + number).backward()
    optimizer.step()
    assert number.item() == pytest.approx(0.5)
    assert frozen.tolist() == [1.0, 1.0]
    assert empty.shape == (0, 3)


# What torch has around optimizers.


def test_tied_weights_are_one_parameter(ours, torch):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    optimizer = ours.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    expected = model[0].weight.detach() - 0.1 * model[0].weight.grad
    optimizer.step()
    assert torch.equal(model[1].weight, expected)
    assert model[0].weight.data_ptr() == model[1].weight.data_ptr()


def test_groups_closures_hooks_and_names(ours, torch):
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = ours.SGD([{"params": [("a", a)], "lr": 0.5, "lr_scale": 3}], lr=torch.tensor(0.25), momentum=0.5)
    optimizer.add_param_group({"params": [("b", b)], "weight_decay": 0.0})
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.25]
    assert [group["param_names"] for group in optimizer.param_groups] == [["a"], ["b"]]
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))

    def closure():
        seen.append(torch.is_grad_enabled())
        loss = (a + b).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4
    assert seen == ["before", True, "after"]
    assert (a.tolist(), b.tolist()) == ([0.5, 0.5], [0.75, 0.75])
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [("again", a)]})
    with pytest.raises(ValueError, match="Invalid weight_decay"):
        optimizer.add_param_group({"params": [("c", torch.nn.Parameter(torch.ones(1)))], "weight_decay": -1})
    optimizer.zero_grad()
    optimizer.step()  # nothing has a gradient
    assert (a.tolist(), b.tolist()) == ([0.5, 0.5], [0.75, 0.75])


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adafactor", "LBFGS"])
def test_state_dicts_go_to_torch_and_back(name, ours, torch):
    options = {"SGD": {"momentum": 0.9}, "LBFGS": {"max_iter": 3}}.get(name, {})
    runs = []
    for first, second in ((torch.optim, ours), (ours, torch.optim)):
        model = mlp(torch)
        optimizer = getattr(first, name)(model.parameters(), lr=1e-2, **options)
        for turn in range(4):
            if turn == 2:
                again = getattr(second, name)(model.parameters(), lr=0.5, **options)
                again.load_state_dict(optimizer.state_dict())
                assert again.param_groups[0]["lr"] == 1e-2
                optimizer = again

            def closure(model=model, optimizer=optimizer):
                optimizer.zero_grad()
                loss = model(torch.ones(2, 64)).square().sum()
                loss.backward()
                return loss

            optimizer.step(closure)
        runs.append([param.detach().numpy() for param in model.parameters()])
    for tensor, other in zip(*runs, strict=True):
        assert tensor == pytest.approx(other, rel=1e-4, abs=1e-5)


def test_state_is_shown_by_parameter_and_hooks_see_it(trained):
    model, optimizer, backward = trained
    assert not optimizer.state
    backward()
    optimizer.step()
    assert optimizer.state[model[0].weight]["exp_avg"].shape == model[0].weight.shape
    assert optimizer.state[model[0].weight]["step"] == 1
    seen = []
    optimizer.register_state_dict_post_hook(lambda _, made: seen.append(len(made["state"])))
    optimizer.register_load_state_dict_pre_hook(lambda _, given: {**given, "state": {}})
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == [4]
    assert not optimizer.state
    with pytest.raises(UnsupportedError, match="load_state_dict"):
        optimizer.state = {model[0].weight: {}}
    with pytest.raises(CheckpointError, match='"param_groups"'):
        optimizer.load_state_dict({"state": {}})


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
@pytest.mark.parametrize("name", ["AdamW", "SAM"])
def test_copies_go_on_by_themselves(copied, name, ours, torch):
    model = mlp(torch)
    optimizer = ours.AdamW(model.parameters(), lr=1e-2)
    if name == "SAM":
        optimizer = ours.SAM(optimizer)
    x = torch.rand(4, 64)

    def stepped(model, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return model(x).detach()

    stepped(model, optimizer)
    other, its_optimizer = copied((model, optimizer))
    before = other(x).detach()
    first = stepped(model, optimizer)
    assert torch.equal(other(x), before)
    assert torch.equal(stepped(other, its_optimizer), first)
    assert not torch.equal(before, first)


def test_a_saved_model_is_as_large_as_its_parameters(trained, torch):
    file = io.BytesIO()
    torch.save({"weight": trained[0][2].weight}, file)
    assert len(file.getvalue()) < 4 * trained[0][2].weight.numel() + 2000


def test_parameters_of_a_compiled_and_of_a_distributed_model(ours, torch):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        x = torch.rand(4, 64)
        results = []
        for wrap in (
            lambda model: model,
            lambda model: torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True),
            lambda model: torch.compile(model, backend="eager"),
        ):
            model = wrap(mlp(torch))
            optimizer = ours.AdamW(model.parameters(), lr=1e-2)
            for turn in range(4):
                optimizer.zero_grad(set_to_none=turn % 2 == 0)
                model(x).square().sum().backward()
                optimizer.step()
            results.append([param.detach() for param in model.parameters()])
        for tensor, *others in zip(*results, strict=True):
            assert all(torch.allclose(tensor, its, rtol=1e-5, atol=1e-6) for its in others)
    finally:
        torch.distributed.destroy_process_group()


def test_accelerate_trains_with_it(ours, torch, accelerate):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    curves = []
    for module in (torch.optim, ours):
        model = mlp(torch)
        x = torch.rand(32, 64)
        optimizer = module.AdamW(model.parameters(), lr=0.05)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20)
        batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=8)
        model, optimizer, batches, scheduler = accelerator.prepare(model, optimizer, batches, scheduler)
        curve = []
        for _ in range(3):
            for (batch,) in batches:
                with accelerator.accumulate(model):
                    loss = model(batch).square().mean()
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                    curve.append(loss.item())
        curves.append(curve)
    assert curves[1] == pytest.approx(curves[0], abs=1e-6)
    assert curves[0][-1] < curves[0][0]


TRAINER = """
import json
import sys
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import optirs_web as ow


def losses(source):
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    model = BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=16, num_labels=10, **sizes))
    texts, labels = torch.randint(0, 64, (160, 16)), torch.randint(0, 10, (160,)).tolist()
    rows = [{"input_ids": text, "labels": label} for text, label in zip(texts, labels)]
    optimizer = source.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 60)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=3, logging_steps=1, max_grad_norm=1.0, report_to=[], use_cpu=True,
            save_strategy="no", disable_tqdm=True, seed=0,
        )
        trainer = Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, scheduler))
        trainer.train()
    return [one["loss"] for one in trainer.state.log_history if "loss" in one]


torch.set_num_threads(1)
print(json.dumps([losses(torch.optim), losses(ow.interop.torch)]))
"""


@pytest.mark.needs("transformers")
def test_the_trainer_of_transformers_trains_with_it(torch, accelerate):
    if find_spec("transformers") is None:
        missing("transformers", "it is not installed")
    torchs, ours = json.loads(run_python(TRAINER, HF_HUB_OFFLINE=1)[-1])
    assert len(ours) == 60
    np.testing.assert_allclose(ours, torchs, rtol=0, atol=1e-5)


def test_torchs_scaler_steps_it(trained, torch):
    model, optimizer, _ = trained
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    before = model[0].weight.detach().clone()
    scaler.scale(model(torch.rand(2, 64)).square().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model[0].weight, before)
    model[0].weight.grad.fill_(float("inf"))
    before = model[0].weight.detach().clone()
    scaler.step(optimizer)
    assert torch.equal(model[0].weight, before)


def test_sparse_gradients_of_rows(ours, torch):
    runs = []
    for module in (torch.optim, ours):
        torch.manual_seed(0)
        table = torch.nn.Embedding(10, 3, sparse=True)
        optimizer = module.SparseAdam(table.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            table(torch.tensor([1, 7, 1])).square().sum().backward()
            optimizer.step()
        runs.append(table.weight.detach())
    assert torch.allclose(*runs, atol=1e-6)
    optimizer = ours.AdamW(table.parameters())
    with pytest.raises(UnsupportedError, match="AdamW does not support sparse gradients"):
        optimizer.step()


def test_gradients_that_lie_in_each_others_place(ours, torch):
    p, q, square = (torch.nn.Parameter(torch.zeros(shape)) for shape in (3, 3, (2, 2)))
    optimizer = ours.SGD([p, q, square], lr=1.0)
    for param in (p, q, square):
        param.grad = torch.zeros_like(param)
    optimizer.zero_grad(set_to_none=False)  # so that they lie in our memory
    p.grad += 1
    q.grad += 2
    square.grad += torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    p.grad, q.grad = q.grad, p.grad
    square.grad = square.grad.T
    optimizer.step()
    assert [tensor.tolist() for tensor in (p, q, square)] == [[-2] * 3, [-1] * 3, [[-1, -3], [-2, -4]]]


def test_what_an_optimizer_has_beside_steps(ours, torch):
    weight = torch.nn.Parameter(torch.full((1,), 4.0))
    optimizer = ours.SGDScheduleFree([weight], lr=1.0, momentum=0.5)
    for _ in range(2):
        weight.grad = torch.ones(1)
        optimizer.step()
    assert weight.item() == 2.25
    optimizer.eval()
    assert weight.item() == 2.5
    assert optimizer.state_dict()["param_groups"][0]["train_mode"] is False
    optimizer.train()
    assert weight.item() == 2.25
    optimizer.check_finite()
