"""torch's interface of optimizers besides the rule: names, hooks, copies, a readable form."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import CheckpointError, UnsupportedError


def named(device, **values):
    return [(name, ow.Parameter(value, device=device)) for name, value in values.items()]


def test_state_goes_by_name_where_parameters_have_names(device):
    pairs = named(device, a=[1.0], b=[1.0, 1.0])
    optimizer = ow.optim.Adam(pairs, lr=0.1)
    optimizer.step(grads=[[1.0], [2.0, 2.0]])
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["param_names"] == ["a", "b"]

    other = ow.optim.Adam([(name, ow.Parameter(param.tolist(), device=device)) for name, param in reversed(pairs)])
    other.load_state_dict(saved)
    state = other.state_dict()["state"]
    assert state[0]["exp_avg"].tolist() == pytest.approx([0.2, 0.2])
    assert state[1]["exp_avg"].tolist() == pytest.approx([0.1])


def test_names_that_differ_are_refused(device):
    saved = ow.optim.Adam(named(device, a=[1.0], b=[1.0])).state_dict()
    with pytest.raises(CheckpointError, match="parameters named b, c"):
        ow.optim.Adam(named(device, a=[1.0], c=[1.0])).load_state_dict(saved)


def test_named_state_dicts_go_to_torch_and_back(device, torch):
    from optirs_web.interop.torch import to_torch

    ours = ow.optim.AdamW(named(device, a=[1.0], b=[2.0]))
    ours.step(grads=[[1.0], [1.0]])
    theirs = torch.optim.AdamW([(name, torch.nn.Parameter(torch.zeros(1))) for name in ("a", "b")])
    theirs.load_state_dict(to_torch(ours.state_dict()))
    assert theirs.param_groups[0]["param_names"] == ["a", "b"]
    ours.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (lambda p, q: [("a", p), q], ValueError, "with/without names"),
        (lambda p, q: [{"params": [("a", p)]}, {"params": [q]}], ValueError, "with/without names"),
        (lambda p, q: [("a", p), ("a", q)], ValueError, "each parameter needs a name of its own"),
        (
            lambda p, q: [{"params": [("a", p)]}, {"params": [("a", q)]}],
            ValueError,
            "two parameters have the same name",
        ),
        (lambda p, q: [(1, p), (2, q)], TypeError, "a pair of a name and a Parameter"),
    ],
)
def test_names_are_all_there_and_different(params, error, message):
    p, q = (ow.Parameter([1.0], device="cpu") for _ in range(2))
    with pytest.raises(error, match=message):
        ow.optim.SGD(params(p, q))


def test_hooks_are_called_in_torchs_order():
    calls = []

    def note(name):
        return lambda *_: calls.append(name)

    w = ow.Parameter([1.0], device="cpu")
    optimizer = ow.optim.SGD([w])
    optimizer.register_step_post_hook(note("post"))
    handle = optimizer.register_step_pre_hook(note("pre"))
    with (
        ow.optim.register_optimizer_step_pre_hook(note("global pre")),
        ow.optim.register_optimizer_step_post_hook(note("global post")),
    ):
        optimizer.step(grads=[[1.0]])
    assert calls == ["global pre", "pre", "post", "global post"]
    calls.clear()
    handle.remove()
    handle.remove()
    optimizer.step(grads=[[1.0]])
    assert calls == ["post"]


def test_a_hook_may_change_what_a_step_is_given():
    w = ow.Parameter([1.0], device="cpu")
    optimizer = ow.optim.SGD([w], lr=1.0)
    optimizer.register_step_pre_hook(lambda optimizer_, args, kwargs: (args, {"grads": [[2.0]]}))
    optimizer.step(grads=[[1.0]])
    assert w.tolist() == [-1.0]
    optimizer.register_step_pre_hook(lambda *_: "nonsense")
    with pytest.raises(TypeError, match=r"must return None or \(args, kwargs\)"):
        optimizer.step(grads=[[1.0]])


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize(
    ("kind", "other"),
    [("Lion", "AdamW"), ("Lion", "CautiousLion"), ("SGD", "LBFGS"), ("SAM", "SGD"), ("SGD", "SAM")],
)
def test_a_state_dict_of_another_kind_of_optimizer_is_refused_and_changes_nothing(kind, other, steps):
    def make(name):
        params = [ow.Parameter([1.0, 2.0], device="cpu")]
        return ow.optim.SAM(ow.optim.SGD(params, lr=0.5)) if name == "SAM" else getattr(ow.optim, name)(params, lr=0.5)

    source, optimizer = make(kind), make(other)
    for _ in range(steps):
        if kind != "SAM":
            source.step(grads=[[1.0, 1.0]])
    before = optimizer.state_dict()
    with pytest.raises(CheckpointError, match=f"holds the state of '{kind}', not that of {other}"):
        optimizer.load_state_dict(source.state_dict())
    np.testing.assert_equal(optimizer.state_dict(), before)
    make(kind).load_state_dict(source.state_dict())
    unnamed = optimizer.state_dict()
    del unnamed["optimizer"]  # as torch's are
    optimizer.load_state_dict(unnamed)


@pytest.mark.parametrize("arguments", [{}, {"defaults": {"lr": 0.1}}, {"lr": 0.1}])
def test_the_base_class_names_optimizers_to_use_instead(arguments):
    with pytest.raises(TypeError, match=r"Optimizer is the base class.*use one such as SGD, Adam or AdamW"):
        ow.optim.Optimizer([ow.Parameter([1.0], device="cpu")], **arguments)


def test_hooks_of_state_dicts():
    optimizer = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], momentum=0.9)
    calls = []
    optimizer.register_state_dict_pre_hook(lambda optimizer_: calls.append("before"))
    optimizer.register_state_dict_post_hook(lambda optimizer_, made: {**made, "extra": 1})
    optimizer.register_state_dict_post_hook(lambda optimizer_, made: calls.append(sorted(made)), prepend=True)
    optimizer.register_load_state_dict_pre_hook(
        lambda optimizer_, given: {key: given[key] for key in ("state", "param_groups")}
    )
    optimizer.register_load_state_dict_post_hook(lambda optimizer_: calls.append("after"))
    saved = optimizer.state_dict()
    assert saved["extra"] == 1
    optimizer.load_state_dict(saved)
    assert calls == ["before", ["optimizer", "param_groups", "state"], "after"]
    with pytest.raises(TypeError, match="a hook must be a function, not int"):
        optimizer.register_step_pre_hook(1)


@pytest.mark.parametrize(
    "through", [copy.deepcopy, lambda optimizer_: pickle.loads(pickle.dumps(optimizer_))], ids=["copy", "pickle"]
)
def test_a_copy_goes_on_by_itself(device, through):
    w = ow.Parameter([1.0, 2.0], device=device, name="w")
    optimizer = ow.optim.AdamW([{"params": [w], "lr": 0.1}], weight_decay=0.1, skip_nonfinite=True)
    optimizer.step(grads=[[1.0, -1.0]])
    w2, optimizer2 = through((w, optimizer))
    assert optimizer2.param_groups[0]["params"][0] is w2
    for param, optimizer_ in ((w, optimizer), (w2, optimizer2)):
        optimizer_.step(grads=[[1.0, 3.0]])
        optimizer_.step(grads=[[float("nan"), 3.0]])
        assert (param.name, optimizer_.skipped_steps) == ("w", 1)
    assert w2.tolist() == w.tolist()
    np.testing.assert_equal(optimizer2.state_dict(), optimizer.state_dict())
    optimizer2.step(grads=[[1.0, 3.0]])
    assert w2.tolist() != w.tolist()


def test_an_optimizer_shows_its_groups():
    w = ow.Parameter([1.0], device="cpu")
    assert repr(ow.optim.SGD([w], lr=0.5)) == (
        "SGD (\nParameter Group 0\n    dampening: 0.0\n    lr: 0.5\n    maximize: False\n    momentum: 0.0\n"
        "    nesterov: False\n    weight_decay: 0.0\n)"
    )


def test_state_is_seen_where_it_lies(device):
    w = ow.Parameter([[1.0, 2.0]], device=device)
    optimizer = ow.optim.Adam([w], lr=0.1)
    before = device.stats.copy()
    state = optimizer.state[w]
    assert (device.stats - before).bytes_down == 0
    optimizer.step(grads=[[[1.0, 3.0]]])
    assert state["exp_avg"].shape == (1, 2)
    assert state["exp_avg"].tolist() == [pytest.approx([0.1, 0.3])]
    assert state["step"].item() == 1.0


@pytest.mark.parametrize("name", ["foreach", "fused", "capturable"])
def test_arguments_of_torch_that_mean_nothing_here_are_taken(name):
    ow.optim.AdamW([ow.Parameter([1.0], device="cpu")], **{name: True}).step(grads=[[1.0]])
    with pytest.raises(TypeError, match="unexpected keyword"):
        ow.optim.AdamW([ow.Parameter([1.0], device="cpu")], fast=True)


def test_a_closure_gives_the_loss(device):
    w = ow.Parameter([3.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9.0
    assert w.tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("Shampoo", "update_freq", 10**40),
        ("GaLore", "scale", "x"),
        ("GaLore", "scale", float("nan")),
        ("SOAP", "shampoo_beta", float("nan")),
        ("DoG", "reps_rel", 1e39),
        ("Muon", "ns_coefficients", (1e40, 1, 1)),
        ("Prodigy", "use_bias_correction", None),
        ("SGD", "maximize", 10**400),
    ],
)
def test_options_that_are_no_float32_are_refused_and_not_loaded(name, option, value):
    make = getattr(ow.optim, name)
    with pytest.raises(ValueError, match=f"Invalid {option} value"):
        make([ow.Parameter(np.ones((3, 4), "f"), device="cpu")], **{option: value})
    optimizer = make([ow.Parameter(np.ones((3, 4), "f"), device="cpu")])
    optimizer.step(grads=[np.ones((3, 4), "f")])
    before = optimizer.state_dict()
    changed = optimizer.state_dict()
    changed["param_groups"][0][option] = value
    with pytest.raises(CheckpointError):
        optimizer.load_state_dict(changed)
    np.testing.assert_equal(optimizer.state_dict(), before)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("AdamW", {"lr": "0.1"}, "Invalid learning rate: 0.1; lr must be a number, not a str"),
        ("SGD", {"lr": None}, "Invalid learning rate: None; lr must be a number, not a NoneType"),
        ("Adam", {"eps": [1e-8]}, "eps must be a number, not a list"),
        (
            "GaLore",
            {"update_proj_gap": "3"},
            "Invalid update_proj_gap value: 3; update_proj_gap must be a number, not a str",
        ),
        ("LBFGS", {"lr": "fast"}, "lr must be a number, not a str"),
    ],
)
def test_an_option_that_is_no_number_is_a_type_error_that_names_it(name, options, message):
    make = getattr(ow.optim, name)
    with pytest.raises(TypeError, match=message):
        make([ow.Parameter(np.ones((3, 4), "f"), device="cpu")], **options)
    with pytest.raises(TypeError, match=message):
        make([{"params": [ow.Parameter(np.ones((3, 4), "f"), device="cpu")], **options}])


@pytest.mark.parametrize(
    ("name", "option"), [("Adam", "amsgrad"), ("SGD", "nesterov"), ("SGD", "maximize"), ("AdamW", "amsgrad")]
)
@pytest.mark.parametrize("value", ["False", [False], np.zeros(2)])
def test_a_flag_that_is_none_is_refused_and_not_loaded(name, option, value):
    make, params = getattr(ow.optim, name), [ow.Parameter([1.0], device="cpu")]
    momentum = {"momentum": 0.9} if name == "SGD" else {}
    with pytest.raises(TypeError, match=f"Invalid {option} value"):
        make(params, **momentum, **{option: value})
    optimizer = make(params, **momentum)
    optimizer.step(grads=[[1.0]])
    before = optimizer.state_dict()
    if isinstance(value, str | list):
        changed = optimizer.state_dict()
        changed["param_groups"][0].update({option: value, "lr": 0.5})
        with pytest.raises(CheckpointError, match=f"Invalid {option} value"):
            optimizer.load_state_dict(changed)
        np.testing.assert_equal(optimizer.state_dict(), before)
        optimizer.param_groups[0][option] = value
        with pytest.raises(TypeError, match=f"Invalid {option} value"):
            optimizer.step(grads=[[1.0]])


def test_a_schedule_in_place_of_a_number_is_told_where_it_goes():
    schedule = ow.optim.schedules.linear_schedule(0.1, 0.0, 4)
    params = [ow.Parameter([1.0], device="cpu")]
    with pytest.raises(
        TypeError, match=r"lr must be a number; lr_scheduler.ScheduleLR\(optimizer, schedule\) has it follow"
    ):
        ow.optim.AdamW(params, lr=schedule)
    with pytest.raises(TypeError, match=r"ScheduleLR\(optimizer, schedule, param='weight_decay'\)"):
        ow.optim.AdamW(params, weight_decay=schedule)
    optimizer = ow.optim.AdamW(params)
    optimizer.param_groups[0]["lr"] = schedule
    with pytest.raises(TypeError, match="lr must be a number"):
        optimizer.step(grads=[[1.0]])


def test_an_unknown_option_is_told_the_one_that_was_meant():
    params = [ow.Parameter([1.0], device="cpu")]
    with pytest.raises(TypeError, match="AdamW got an unexpected keyword argument 'beta'; did you mean 'betas'"):
        ow.optim.AdamW(params, beta=(0.9, 0.9))
    with pytest.raises(TypeError, match="unexpected keyword argument 'skip_nonfinit'; did you mean 'skip_nonfinite'"):
        ow.optim.AdamW(params, skip_nonfinit=True)
    with pytest.raises(TypeError, match=r"'learning_rate'; there are capturable, .*, lr, "):
        ow.optim.SGD(params, learning_rate=0.1)
    with pytest.raises(TypeError, match="SGD has no option weight_deca; did you mean 'weight_decay'"):
        ow.optim.SGD([{"params": params, "weight_deca": 0.1}])


def test_a_wrapper_is_told_what_it_is_made_around():
    params = [ow.Parameter([1.0], device="cpu")]
    with pytest.raises(TypeError, match=r"as in SAM\(SGD\(params\)\), not a list"):
        ow.optim.SAM(params, ow.optim.SGD)
    with pytest.raises(TypeError, match=r"as in SAM\(SGD\(params\)\), not the class SGD"):
        ow.optim.SAM(ow.optim.SGD)


@pytest.mark.parametrize("name", ["APOLLO", "GaLore"])
def test_the_rank_is_not_changed_in_training(name):
    optimizer = getattr(ow.optim, name)([ow.Parameter(np.ones((3, 4), "f"), device="cpu")], rank=2)
    optimizer.step(grads=[np.ones((3, 4), "f")])
    before = optimizer.state_dict()
    changed = optimizer.state_dict()
    changed["param_groups"][0]["rank"] = 4
    with pytest.raises(CheckpointError):
        optimizer.load_state_dict(changed)
    np.testing.assert_equal(optimizer.state_dict(), before)
    optimizer.param_groups[0]["rank"] = 3
    with pytest.raises(UnsupportedError, match="rank cannot change"):
        optimizer.step()


@pytest.mark.parametrize(
    ("name", "options"),
    [("CAME", {}), ("Adafactor", {}), ("AdamMini", {}), ("APOLLO", {"state_dtype": "bfloat16"})],
)
def test_the_state_of_a_parameter_without_elements_is_loaded(name, options):
    optimizer = getattr(ow.optim, name)([ow.Parameter(np.zeros((0, 3), "f"), device="cpu")], **options)
    optimizer.step(grads=[np.zeros((0, 3), "f")])
    optimizer.load_state_dict(optimizer.state_dict())
    copy.deepcopy(optimizer).step()


def test_gradients_are_all_taken_or_none():
    params = [ow.Parameter([1.0], device="cpu") for _ in range(2)]
    with pytest.raises(UnsupportedError):
        ow.optim.SGD(params).step(grads=[[1.0], ["a"]])
    assert params[0].grad is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("lr", np.zeros(2), "Invalid learning rate"), ("betas", [7.0, 0.999], "Invalid beta parameter at index 0")],
)
def test_an_option_that_is_set_to_nonsense_in_training_is_refused(device, name, value, message):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Adam([w], betas=[0.9, 0.999])
    optimizer.step(grads=[[1.0]])
    if name == "betas":
        optimizer.param_groups[0]["betas"][0] = value[0]
    else:
        optimizer.param_groups[0][name] = value
    with pytest.raises(ValueError, match=message):
        optimizer.step(grads=[[1.0]])


@pytest.mark.parametrize("name", ["lr", "weight_decay", "eps"])
def test_options_of_a_state_dict_are_numbers(name):
    optimizer = ow.optim.AdamW([ow.Parameter([1.0], device="cpu")])
    before = optimizer.state_dict()
    broken = {**before, "param_groups": [{**before["param_groups"][0], name: np.zeros(2)}]}
    with pytest.raises(CheckpointError, match="do not fit"):
        optimizer.load_state_dict(broken)
    assert optimizer.state_dict()["param_groups"] == before["param_groups"]


@pytest.mark.parametrize(
    ("name", "betas"),
    [("AdamW", (0.9, 0.99)), ("Lion", (0.9, 0.99)), ("Adan", (0.9, 0.8, 0.7)), ("AdEMAMix", (0.9, 0.99, 0.999))],
)
@pytest.mark.parametrize("made", ["tensors", "tensors of one axis", "arrays"])
def test_betas_are_tensors_too(device, name, betas, made):
    rounded = [float(np.float32(values)) for values in betas]
    tensors = {
        "tensors": lambda values: ow.tensor(values, device=device),
        "tensors of one axis": lambda array: ow.tensor([array], device=device),
        "arrays": np.array,
    }[made]
    params = [ow.Parameter([1.0, 2.0], device=device) for _ in range(2)]
    inputs = (rounded, [tensors(one) for one in rounded])
    for param, its_betas in zip(params, inputs, strict=True):
        optimizer = getattr(ow.optim, name)([param], betas=its_betas)
        for _ in range(3):
            optimizer.step(grads=[[0.5, -1.0]])
    assert params[1].tolist() == params[0].tolist()
    assert optimizer.param_groups[0]["betas"] == optimizer.defaults["betas"] == tuple(rounded)
    pickle.loads(pickle.dumps(optimizer))


@pytest.mark.parametrize(
    ("betas", "message"),
    [
        (lambda tensor: (tensor(0.9), 0.99), "betas must be either all numbers or all tensors"),
        (lambda tensor: (0.9, np.array(0.99)), "betas must be either all numbers or all tensors"),
        (lambda tensor: (tensor([0.9, 0.9]), tensor(0.99)), r"Tensor betas\[0\] must be 1-element"),
        (lambda tensor: (tensor(0.9), tensor([])), r"Tensor betas\[1\] must be 1-element"),
        (lambda tensor: tensor([0.9, 0.99]), "betas must be a tuple of numbers, not <Tensor"),
        (lambda tensor: (tensor(0.9), tensor(1.5)), "Invalid beta parameter at index 1: 1.5"),
        (lambda tensor: (tensor(0.9),), "betas must be 2 numbers"),
        (lambda tensor: (0.9, "0.99"), "Invalid beta parameter at index 1: '0.99', a str, where a number is expected"),
    ],
)
def test_betas_that_are_none_are_refused_in_words(betas, message):
    inputs = betas(lambda value: ow.tensor(value, device="cpu"))
    with pytest.raises(ValueError, match=message):
        ow.optim.Adam([ow.Parameter([1.0], device="cpu")], betas=inputs)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (lambda p: {p}, "pass a list, not a set"),
        (lambda p: [{"params": {p}}], "pass a list, not a set"),
        (lambda p: [{"params": [p], 5: 1}], "must be a string, not 5"),
        (lambda p: [{"params": [p], "param_names": 5}], "param_names must be strings, not 5"),
        (lambda p: [{"params": [p], "param_names": [[1]]}], "param_names must be strings"),
    ],
)
def test_groups_of_another_kind_are_refused_by_what_is_wrong(groups, message):
    with pytest.raises(TypeError, match=message):
        ow.optim.Adam(groups(ow.Parameter([1.0], device="cpu")))


@pytest.mark.parametrize("changed", [(1, 2), ((), None), [(), {}]], ids=str)
def test_a_hook_before_a_step_returns_arguments_or_none(changed):
    optimizer = ow.optim.SGD([ow.Parameter([1.0], device="cpu")])
    optimizer.register_step_pre_hook(lambda *_: changed)
    with pytest.raises(TypeError, match=r"must return None or \(args, kwargs\)"):
        optimizer.step(grads=[[1.0]])


def test_adagrad_has_one_initial_value_for_all_groups():
    groups = [
        {"params": [ow.Parameter([1.0], device="cpu")], "initial_accumulator_value": value} for value in (1.0, 4.0)
    ]
    ow.optim.Adagrad(groups[:1], initial_accumulator_value=1.0)
    with pytest.raises(ValueError, match="initial_accumulator_value is the same for all groups"):
        ow.optim.Adagrad(groups, initial_accumulator_value=1.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Adafactor", {"eps": [1.0]}, r"Invalid epsilon value: eps must be two numbers, not \[1.0\]"),
        ("CAME", {"eps": 1e-8}, "Invalid epsilon value: eps must be two numbers, not 1e-08"),
        ("LBFGS", {"max_iter": "x"}, "Invalid max_iter value: x"),
        ("LBFGS", {"max_iter": None}, "Invalid max_iter value: None"),
        ("SGD", {"nesterov": {}}, "Invalid nesterov value: {}"),
        ("Adam", {"amsgrad": np.nan}, "Invalid amsgrad value: nan"),
        ("Adam", {"maximize": b"x"}, "Invalid maximize value: b'x'"),
    ],
)
def test_an_option_of_another_kind_is_refused_by_its_name(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(ow.optim, name)([ow.Parameter([[1.0]], device="cpu")], **options)


def test_options_may_be_numbers_of_numpys_float16():
    weight = ow.Parameter([1.0], device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = ow.optim.SGD([weight], lr=np.float16(0.5), weight_decay=np.float16(0.0))
        optimizer.step(grads=[[1.0]])
        optimizer.param_groups[0]["lr"] = np.float16("inf")
        with pytest.raises(ValueError, match="Invalid learning rate: inf"):
            optimizer.step(grads=[[1.0]])
    assert weight.tolist() == [0.5]
