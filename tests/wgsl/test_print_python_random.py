"""Random map functions: the printed NumPy computes what a WebGPU adapter computes, bit for bit.

The floats are chosen so that every operation on them is exact (small multiples of a power of two), since an
adapter may regroup what is not. OPTIRS_FUZZ_EXAMPLES sets how many modules are tried.
"""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from map_functions import DTYPES, compiled, evaluate, parameter_types, run_on_gpu
from requirements import vulkan_device

EXAMPLES = int(os.environ.get("OPTIRS_FUZZ_EXAMPLES", "25"))
FUNCTIONS = 4
SAMPLES = 256

HEADER = """
struct Pair { a: i32, b: f32, c: bool }
struct Nest { p: Pair, n: u32 }
fn bounded(x: f32) -> f32 { return clamp(floor(x * 4.0) * 0.25, -8.0, 8.0); }
"""
MEMBERS = {"Pair": {"a": "i32", "b": "f32", "c": "bool"}, "Nest": {"p": "Pair", "n": "u32"}}
SCALARS = ("i32", "u32", "f32", "bool")
PARAMETERS = {"x": "i32", "y": "u32", "z": "f32", "w": "f32", "t": "bool", "s": "Nest"}

# What may be written for a value of each type: {i}, {u}, {f}, {b} are values, {I} and {U} literals that are not zero,
# {N} a literal below 32, {F} a multiple of 1/4.
INTEGER = ["{0} + {0}", "{0} - {0}", "{0} * {0}", "{0} / {0}", "{0} % {0}", "{0} & {0}", "{0} | {0}", "{0} ^ {0}",
           "~{0}", "{0} << {u}", "{0} >> {u}", "{0} << {N}u", "{0} >> {N}u", "min({0}, {0})", "max({0}, {0})",
           "select({0}, {0}, {b})", "countOneBits({0})", "{0} * {1}", "{0} / {1}", "{0} % {1}"]  # fmt: skip
FORMS = {
    "i32": [form.replace("{0}", "{i}").replace("{1}", "{I}") for form in INTEGER]
    + ["-{i}", "abs({i})", "sign({i})", "i32({u})", "bitcast<i32>({u})", "i32({f})", "i32({b})", "clamp({i}, -9, 99)"],
    "u32": [form.replace("{0}", "{u}").replace("{1}", "{U}") for form in INTEGER]
    + ["u32({i})", "bitcast<u32>({i})", "u32({f})", "u32({b})", "firstLeadingBit({u})", "reverseBits({u})"],
    "f32": ["{f} + {f}", "{f} - {f}", "{f} * {f}", "-{f}", "{f} * {F}", "{f} + {F}", "min({f}, {f})", "max({f}, {f})",
            "abs({f})", "floor({f})", "ceil({f})", "trunc({f})", "round({f})", "sign({f})", "fract({f})",
            "select({f}, {f}, {b})", "f32({i} % 8)", "f32({u} & 7u)", "f32({b})", "clamp({f}, -2.0, 2.5)",
            "step({f}, {f})", "bounded({f})", "fma({f}, {f}, {f})"],
    "bool": ["{i} < {i}", "{i} == {i}", "{u} >= {u}", "{u} != {U}", "{f} < {f}", "{f} >= {F}", "{f} == {f}", "!{b}",
             "{b} && {b}", "{b} || {b}", "{b} & {b}", "{b} | {b}", "{b} == {b}", "{b} != {b}", "select({b}, {b}, {b})"],
}  # fmt: skip
LITERALS = {
    "I": st.sampled_from(["1", "2", "3", "-3", "7", "100", "65537", "-2147483647"]),
    "U": st.sampled_from(["1u", "2u", "3u", "7u", "255u", "65537u", "4294967295u"]),
    "N": st.integers(0, 31).map(str),
    "F": st.sampled_from(["0.0", "1.0", "-1.0", "0.5", "2.25", "-3.75"]),
}


class Writer:
    """Writes one function; `variables` are (name, type, whether it can be assigned)."""

    def __init__(self, draw, functions):
        self.draw = draw
        self.functions = functions
        self.variables = [(name, type_, False) for name, type_ in PARAMETERS.items()]
        self.names = 0
        self.loops = 0
        self.room = 24

    def chance(self, percent):
        return self.draw(st.integers(0, 99)) < percent

    def pick(self, options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def places(self, type_, assigned):
        """Everything of that type that has a name, members too."""
        found, work = [], [(n, t) for n, t, can in self.variables if can or not assigned]
        while work:
            name, kind = work.pop()
            if kind == type_:
                found.append(name)
            work.extend((f"{name}.{member}", inner) for member, inner in MEMBERS.get(kind, {}).items())
        return found

    def expression(self, type_, depth=2):
        if type_ in MEMBERS:
            return self.composite(type_)
        if depth == 0 or self.chance(25):
            return self.pick(self.places(type_, False))
        calls = [name for name, result in self.functions if result == type_]
        if calls and self.chance(10):
            return self.call(self.pick(calls))
        values = {key: self.draw(strategy) for key, strategy in LITERALS.items()}
        form = self.pick(FORMS[type_])
        for key, kind in zip("iufb", SCALARS, strict=True):
            while "{" + key + "}" in form:
                form = form.replace("{" + key + "}", self.expression(kind, depth - 1), 1)
        return f"({form.format(**values)})"

    def call(self, name):
        arguments = [self.value(type_, 1) for type_ in PARAMETERS.values()]
        return f"{name}({', '.join(arguments)})"

    def composite(self, type_):
        calls = [name for name, result in self.functions if result == type_]
        if calls and self.chance(30):
            return self.call(self.pick(calls))
        known = self.places(type_, False)
        if known and self.chance(40):
            return self.pick(known)
        return f"{type_}({', '.join(self.value(kind, 1) for kind in MEMBERS[type_].values())})"

    def value(self, type_, depth=2):
        """An expression that may be kept: floats bounded, so that what is computed from them stays exact."""
        text = self.expression(type_, depth)
        return f"bounded({text})" if type_ == "f32" else text

    def declared(self, type_, assignable):
        self.names += 1
        self.variables.append((f"v{self.names}", type_, assignable))
        return f"v{self.names}"

    def block(self, escapes, depth, may_leave=True):
        known = len(self.variables)
        lines = [self.statement(escapes, depth) for _ in range(self.draw(st.integers(1, 4)))]
        if escapes and may_leave and self.chance(50):
            way = self.pick(escapes)
            lines.append(f"return {self.value(self.result)};" if way == "return" else f"{way};")
        del self.variables[known:]
        return "{ " + " ".join(lines) + " }"

    def statement(self, escapes, depth):
        self.room -= 1
        kinds = ["declare", "assign", "assign", "assign"]
        if depth < 3 and self.room > 0:
            kinds += ["if", "if", "if", "if", "switch"] + ["for"] * (2 if self.loops < 3 else 0)
        return getattr(self, "write_" + self.pick(kinds))(escapes, depth)

    def write_declare(self, escapes, depth):
        type_ = self.pick((*SCALARS, *MEMBERS))
        value, keyword = self.value(type_), self.pick(("let", "var", "var"))
        return f"{keyword} {self.declared(type_, keyword == 'var')} = {value};"

    def write_assign(self, escapes, depth):
        type_ = self.pick((*SCALARS, "Pair"))
        targets = self.places(type_, True)
        if not targets:
            return self.write_declare(escapes, depth)
        sign = self.pick(("", "", "+", "^", "/")) if type_ in ("i32", "u32") else ""
        return f"{self.pick(targets)} {sign}= {self.value(type_)};"

    def write_if(self, escapes, depth):
        escapes, first = escapes or ["return"], self.chance(50)  # not both may leave: then nothing may follow
        text = f"if {self.expression('bool')} {self.block(escapes, depth + 1, first)}"
        return text + (f" else {self.block(escapes, depth + 1, not first)}" if self.chance(50) else "")

    def write_switch(self, escapes, depth):
        inner = [*{*escapes, "return", "break"}]
        labels = ["case 0:", "case 1, -2:", "default:", "case 3:"]
        cases = " ".join(f"{label} {self.block(sorted(inner), depth + 1, label != 'default:')}" for label in labels)
        return f"switch {self.expression('i32')} % 4 {{ {cases} }}"

    def write_for(self, escapes, depth):
        self.loops += 1
        known = len(self.variables)
        counter = self.declared("i32", False)
        body = self.block(["break", "continue", "return"] if self.chance(50) else ["continue"], depth + 1)
        del self.variables[known:]
        return f"for (var {counter} = 0; {counter} < {self.draw(st.integers(1, 3))}; {counter}++) {body}"

    def function(self, name):
        self.result = self.pick((*SCALARS, *MEMBERS))
        lines = [self.write_declare([], 0) for _ in range(2)]
        lines += [self.statement([], 0) for _ in range(self.draw(st.integers(2, 5)))]
        lines.append(f"return {self.value(self.result)};")
        parameters = ", ".join(f"{parameter}: {type_}" for parameter, type_ in PARAMETERS.items())
        body = "\n    ".join(lines)
        return f"fn {name}({parameters}) -> {self.result} {{\n    {body}\n}}\n"


@st.composite
def modules(draw):
    """WGSL text with a few functions, which may call those before them."""
    text, functions = HEADER, []
    for number in range(FUNCTIONS):
        writer = Writer(draw, functions)
        text += writer.function(f"f{number}")
        functions = [*functions, (f"f{number}", writer.result)]
    return text


def inputs(type_, random):
    if type_ == "bool":
        return random.random(SAMPLES) < 0.5
    if type_ == "f32":
        return (random.integers(-32, 33, SAMPLES) / 4).astype(np.float32)
    words = random.integers(0, 2**32, SAMPLES, dtype=np.uint32) >> random.integers(0, 32, SAMPLES, dtype=np.uint32)
    edges = random.choice(np.array([0, 1, 31, 32, 2**31 - 1, 2**31, 2**32 - 1], np.uint32), SAMPLES)
    signed = np.where(random.random(SAMPLES) < 0.4, 0 - words, words)
    return np.where(random.random(SAMPLES) < 0.3, edges, signed).view(DTYPES[type_])


@pytest.fixture(scope="module")
def gpu():
    return vulkan_device()


@settings(
    max_examples=EXAMPLES, deadline=None, derandomize="OPTIRS_FUZZ_EXAMPLES" not in os.environ, database=None,
    phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(text=modules())
def test_random_functions_compute_what_an_adapter_computes(gpu, text):
    functions, namespace = compiled(text)
    functions = [function for function in functions if function.name != "bounded"]
    random = np.random.default_rng(0)
    leaves = [[inputs(type_, random) for type_ in parameter_types(function)] for function in functions]
    wanted = iter(run_on_gpu(gpu, text, functions, [leaf for one in leaves for leaf in one]))
    for function, arguments in zip(functions, leaves, strict=True):
        for leaf in evaluate(namespace, function, arguments):
            expected = next(wanted)
            got = np.broadcast_to(leaf, expected.shape)
            assert got.dtype == expected.dtype
            different = np.flatnonzero(got != expected)
            assert not len(different), (
                f"{function.name}: numpy gives {got[different[0]]!r}, the adapter {expected[different[0]]!r} "
                f"for {[argument[different[0]] for argument in arguments]}"
            )
