"""Programs over any f32, infinities and NaNs too, with the range of results that WGSL allows for each.

Branches depend on what is exact only: integers, and single parameters compared with numbers.
"""

import re

import numpy as np

from . import intervals as ranges

HEADER = """
import package::lib::math::{precise_exp, precise_log, precise_pow, precise_tanh, precise_sin, precise_cos};
import package::lib::math::{expm1, log1p, is_nan, is_inf, is_finite};
struct Results { last: f32, before: f32, more: f32 }
"""
PARAMETERS = {"a": "f32", "b": "f32", "c": "f32", "n": "i32"}
NUMBERS = ("1.0", "0.0", "-1.0", "0.5", "3.7", "-0.3", "100.0", "1e-3", "1e10")

# What is written, and what computes the range of its results; each as often as it is to be chosen.
FORMS = [
    *[("({} + {})", ranges.add), ("({} - {})", ranges.subtract), ("({} * {})", ranges.multiply)] * 3,
    *[("({} / {})", ranges.divide)] * 2,
    ("(-{})", ranges.negate),
    ("abs({})", ranges.absolute),
    ("min({}, {})", ranges.minimum),
    ("max({}, {})", ranges.maximum),
    ("clamp({}, -1.5, 20.0)", lambda x: ranges.clamp(x, -1.5, 20.0)),
    ("saturate({})", lambda x: ranges.clamp(x, 0.0, 1.0)),
    ("floor({})", ranges.floor),
    ("ceil({})", ranges.ceil),
    ("trunc({})", ranges.trunc),
    ("round({})", ranges.round_),
    ("fract({})", ranges.fract),
    ("sign({})", ranges.sign),
    ("sqrt({})", ranges.square_root),
    ("sqrt(abs({}))", lambda x: ranges.square_root(ranges.absolute(x))),
    ("inverseSqrt(abs({}) + 0.01)", lambda x: ranges.inverse_root(ranges.add(ranges.absolute(x), _number("0.01")))),
    ("fma({}, {}, {})", ranges.fma),
    ("mix({}, {}, {})", ranges.mix),
    ("degrees({})", ranges.degrees),
    ("radians({})", ranges.radians),
    ("quantizeToF16(clamp({}, -60000.0, 60000.0))", ranges.half),
    ("precise_exp({})", ranges.exp),
    ("precise_log({})", ranges.log),
    ("precise_log(abs({}))", lambda x: ranges.log(ranges.absolute(x))),
    ("precise_pow(abs({}), {})", lambda x, y: ranges.power(ranges.absolute(x), y)),
    ("precise_tanh({})", ranges.tanh),
    ("precise_sin({})", ranges.sin),
    ("precise_cos({})", ranges.cos),
    ("expm1({})", ranges.expm1),
    ("log1p({})", ranges.log1p),
]
CONDITIONS = [
    ("n > 3", lambda p: p["n"] > 3),
    ("(n & 1) == 0", lambda p: (p["n"] & 1) == 0),
    ("is_nan(a)", lambda p: np.isnan(p["a"])),
    ("is_inf(b)", lambda p: np.isinf(p["b"])),
    ("is_finite(c)", lambda p: np.isfinite(p["c"])),
    ("b < 0.5", lambda p: p["b"] < 0.5),
    ("abs(c) >= 2.0", lambda p: np.abs(p["c"]) >= 2.0),
]


def _number(text):
    return ranges.exactly(np.float32(text))


def write(choices, name):
    """WGSL of the function of that name, without the header; and what computes the intervals of its results.

    The latter takes the parameters by name, as arrays.
    """
    writer = _Writer(choices)
    text = writer.function(name)

    def expected(parameters):
        values = {parameter: ranges.exactly(parameters[parameter]) for parameter in "abc"}
        shape = parameters["n"].shape
        for step in writer.steps:
            step(values, parameters)
        return [ranges.Interval(*(np.broadcast_to(value, shape) for value in values[name])) for name in writer.results]

    return text, expected


class _Writer:
    """Writes one function; `steps` do to intervals, by the names of what holds them, what its statements do."""

    def __init__(self, choices):
        self.choices, self.steps = choices, []
        self.names = ["a", "b", "c"]

    def function(self, name):
        lines = self.choices.several(self.statement, 3)
        text, value = self.expression(2)
        self.steps.append(lambda values, _: values.update(more=value(values)))
        self.results = [self.names[-1], self.names[-2], "more"]
        parameters = ", ".join(f"{parameter}: {type_}" for parameter, type_ in PARAMETERS.items())
        body = "\n    ".join([*lines, f"return Results({self.names[-1]}, {self.names[-2]}, {text});"])
        return f"fn {name}({parameters}) -> Results {{\n    {body}\n}}\n"

    def expression(self, depth):
        """The text, and what computes its interval from those of names."""
        with self.choices.span():
            return self.written(depth)

    def written(self, depth):
        if depth == 0 or not self.choices.chance(80):
            if self.choices.chance(20):
                number = self.choices.pick(NUMBERS)
                return number, lambda values: _number(number)
            name = self.choices.pick(self.names)
            return name, lambda values: values[name]
        form, function = self.choices.pick(FORMS)
        operands = [self.expression(depth - 1) for _ in range(form.count("{}"))]
        if not any(re.search(r"\b([abc]|v\d+)\b", text) for text, _ in operands):
            operands[0] = "a", lambda values: values["a"]  # what is constant is computed in float64
        return form.format(*(text for text, _ in operands)), lambda values: function(
            *(value(values) for _, value in operands)
        )

    def statement(self):
        return getattr(self, "write_" + self.choices.pick(("let", "let", "if", "for")))()

    def declared(self):
        name = f"v{len(self.names)}"
        self.names.append(name)
        return name

    def write_let(self):
        text, value = self.expression(2)
        name = self.declared()
        self.steps.append(lambda values, _: values.update({name: value(values)}))
        return f"let {name} = {text};"

    def write_if(self):
        first, before = self.expression(1)
        name = self.declared()
        condition, holds = self.choices.pick(CONDITIONS)
        second, then = self.expression(2)
        third, otherwise = self.expression(1)
        has_else = self.choices.chance(50)

        def step(values, parameters):
            values[name] = before(values)
            yes, no = then(values), otherwise(values) if has_else else values[name]
            values[name] = ranges.choose(holds(parameters), yes, no)

        self.steps.append(step)
        rest = f" else {{ {name} = {third}; }}" if has_else else ""
        return f"var {name} = {first}; if {condition} {{ {name} = {second}; }}{rest}"

    def write_for(self):
        first, before = self.expression(1)
        name = self.declared()
        count = 1 + self.choices.below(3)
        second, then = self.expression(2)
        condition, holds = self.choices.pick(CONDITIONS)

        def step(values, parameters):
            values[name] = before(values)
            for _ in range(count):
                values[name] = ranges.choose(holds(parameters), values[name], then(values))

        self.steps.append(step)
        counter = f"i_{name}"
        skip = f"if {condition} {{ continue; }}"
        return (
            f"var {name} = {first}; for (var {counter} = 0; {counter} < {count}; {counter}++) "
            f"{{ {skip} {name} = {second}; }}"
        )
