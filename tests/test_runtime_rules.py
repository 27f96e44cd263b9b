"""Rules in the runtime: those that are refused."""

import pytest

import optirs_web as ow
from optirs_web.errors import ShaderError

RULE = """
struct Hyper {{ lr: f32 }}
struct Scalars {{ step: f32, sum_sq: f32 }}
struct State {{ direction: f32 }}
struct Measured {{ sum_sq: f32 }}
struct Updated {{ param: f32, state: State }}

fn advance(s: Scalars) -> Scalars {{ return Scalars(s.step + 1.0, s.sum_sq); }}
fn prepare(param: f32, {prepare}: f32, state: State) -> Updated {{ return Updated(param, State({prepare})); }}
fn measure({measure}: f32) -> Measured {{ return Measured({measure} * {measure}); }}
fn settle(s: Scalars, measured: Measured) -> Scalars {{ return Scalars(s.step, measured.sum_sq); }}
fn update(param: f32, {update}: f32, state: State, h: Hyper, s: Scalars) -> Updated {{
    return Updated(param - h.lr * (state.direction + {update}) / s.sum_sq, state);
}}
"""


def made_with_accumulation(asking):
    """An optimizer of a rule in which these parts ask for the gradient, and others for the parameter."""
    names = {part: "grad" if part in asking else "param" for part in ("prepare", "measure", "update")}
    text = RULE.format(**names).replace("param: f32, param: f32", "param: f32")
    kind = ow.optim.from_wgsl(text, name="mine.wgsl", lr=0.1)
    kind([ow.Parameter([1.0], device="cpu")])  # without accumulation
    return kind([ow.Parameter([1.0], device="cpu")], transforms=[ow.optim.transforms.accumulate(2)])


@pytest.mark.parametrize("asking", [("prepare", "measure"), ("measure",)])
def test_gradients_cannot_be_accumulated_where_the_last_part_that_asks_for_them_only_measures(asking):
    with pytest.raises(
        ShaderError, match=r"^mine\.wgsl:10:\d+: gradients cannot be accumulated.*'measure' is the last"
    ):
        made_with_accumulation(asking)


@pytest.mark.parametrize(
    "asking", [(), ("prepare",), ("update",), ("measure", "update"), ("prepare", "measure", "update")]
)
def test_gradients_can_be_accumulated_where_a_part_can_keep_them(asking):
    assert made_with_accumulation(asking)
