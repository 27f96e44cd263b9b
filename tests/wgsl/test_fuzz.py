"""No input makes the front end hang or crash; what it prints reads back; what it takes, naga takes.

OPTIRS_FUZZ_EXAMPLES raises the number of examples per test (200 by default).
"""

import contextlib
import os
import random
import re
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from optirs_web.errors import ShaderError
from optirs_web.wgsl import check, link, parse, print_wgsl
from optirs_web.wgsl.lints import lint

FOR_DAWN_ALONE = "subgroup_matrix"

EXAMPLES = int(os.environ.get("OPTIRS_FUZZ_EXAMPLES", "200"))

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="OPTIRS_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def take(text, host="naga"):
    """The shader as it is printed after linking; None where it is refused. Anything else is a bug."""
    try:
        linked = link(parse(text, "f.wgsl"))
    except ShaderError as error:
        if min(error.line, error.column) < 1:
            raise AssertionError("an error without a place") from error
        return None
    host = "tint" if FOR_DAWN_ALONE in text else host
    printed = print_wgsl(linked, host)
    again = parse(printed, "g.wgsl")
    check(again)
    assert print_wgsl(again, host) == printed
    with contextlib.suppress(ShaderError):
        lint(linked)
    return printed


TOKENS = r"""
fn struct const override var let if else for while loop switch case default return break continue continuing
alias enable import package const_assert true false f32 i32 u32 bool f16 vec2 vec3 vec4f array atomic bitcast
ptr main x y z i a b S P select max dot abs atomicAdd workgroupBarrier arrayLength subgroupAdd f g read_write
storage uniform workgroup private compute workgroup_size group binding builtin global_invocation_id 0 1 1u 2i
3.5 1e9f 0x7fu .5 1h ( ) { } [ ] < > << >> <= >= == != = += -= *= /= %= &= |= ^= <<= >>= ++ -- + - * / % & | ^
~ ! && || . , ; : :: @ -> _ // /* */ 0x 1.e 99999999999999999999 1e999 §
"""
WORDS = TOKENS.split()


@fuzz
@given(st.lists(st.sampled_from(WORDS), max_size=60), st.sampled_from([" ", "\n", ""]))
def test_any_sequence_of_tokens_is_taken_or_refused(words, separator):
    take(separator.join(words))


@fuzz
@given(st.text(max_size=200))
def test_any_text_is_taken_or_refused(text):
    take(text)


@fuzz
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_sequence_of_tokens_in_a_function_is_taken_or_refused(words):
    take(f"fn f(a: f32, i: u32) -> f32 {{ var x = a; {' '.join(words)}; return x; }}")


@settings(fuzz, max_examples=5 * EXAMPLES)
@given(st.integers(0, 2**32))
def test_damaged_shaders_are_taken_or_refused(kernels, shaders, naga, seed):
    rng = random.Random(seed)
    text = rng.choice([*kernels.values(), *shaders.values()])
    for _ in range(rng.randint(1, 3)):
        text = damage(text, rng)
    printed = take(text)
    if printed is not None and FOR_DAWN_ALONE not in text:
        assert naga(printed) is None, printed


def damage(text, rng):
    """Drop, double, swap or replace a token."""
    words = re.findall(r"\w+|[^\w\s]+|\s+", text)
    at, other = rng.randrange(len(words)), rng.randrange(len(words))
    kind = rng.randrange(5)
    if kind == 0:
        del words[at]
    elif kind == 1:
        words.insert(at, words[other])
    elif kind == 2:
        words[at], words[other] = words[other], words[at]
    elif kind == 3:
        words[at] = rng.choice(WORDS)
    else:
        alike = [word for word in words if word.isidentifier() == words[at].isidentifier() and not word.isspace()]
        words[at] = rng.choice(alike)
    return "".join(words)


DEEP = {
    "parentheses": lambda n: f"fn f() -> u32 {{ return {'(' * n}1u{')' * n}; }}",
    "unary operators": lambda n: f"fn f(x: u32) -> u32 {{ return {'~' * n}x; }}",
    "a chain": lambda n: f"fn f(x: u32) -> u32 {{ return x{' + x' * n}; }}",
    "a chain on the right": lambda n: f"fn f(x: u32) -> u32 {{ return {'x + (' * n}x{')' * n}; }}",
    "blocks": lambda n: f"fn f() {{ {'{' * n}{'}' * n} }}",
    "ifs": lambda n: f"fn f(x: bool) {{ {'if x {' * n}{'}' * n} }}",
    "else ifs": lambda n: f"fn f(x: bool) {{ {'if x {} else ' * n} {{}} }}",
    "loops": lambda n: f"fn f() {{ {'loop { if true { break; }' * n}{'}' * n} }}",
    "calls": lambda n: f"fn f(x: f32) -> f32 {{ return {'abs(' * n}x{')' * n}; }}",
    "array types": lambda n: f"fn f(x: {'array<' * n}f32{', 1>' * n}) {{ }}",
    "indices": lambda n: f"fn f(x: array<u32, 4>) -> u32 {{ return {'x[' * n}0{']' * n}; }}",
    "members": lambda n: f"fn f(x: vec2<u32>) -> vec2<u32> {{ return x{'.xy' * n}; }}",
    "comments": lambda n: "/*" * n + "*/" * n,
    "open comments": lambda n: "/*" * n,
    "open brackets": lambda n: "fn f() { x = " + "([" * n,
    "structs": lambda n: "\n".join(
        ["struct S0 { x: f32 }"] + [f"struct S{i + 1} {{ a: S{i}, b: S{i} }}" for i in range(n)]
    ),
    "aliases": lambda n: "\n".join([f"alias A{i} = A{i + 1};" for i in range(n)] + [f"alias A{n} = f32;"]),
    "constants": lambda n: "\n".join([f"const c{i} = c{i + 1} + 1;" for i in range(n)] + [f"const c{n} = 1;"]),
    "doubling constants": lambda n: "\n".join(
        ["const a0 = array(1, 2);"]
        + [f"const a{i + 1} = array(a{i}, a{i});" for i in range(n)]
        + [f"fn f() {{ _ = a{n}; }}"]
    ),
    "functions": lambda n: "\n".join(
        [f"fn g{i}() {{ g{i + 1}(); g{i + 1}(); }}" for i in range(n)] + [f"fn g{n}() {{}}"]
    ),
    "functions with effects": lambda n: "\n".join(
        ["var<private> p: u32;"] + [f"fn g{i}() {{ g{i + 1}(); }}" for i in range(n)] + [f"fn g{n}() {{ p++; }}"]
    ),
    "decided ifs": lambda n: f"fn f() {{ {'if true { let a = 1; _ = a; } ' * n} }}",
    "nested decided ifs": lambda n: f"fn f() {{ {'if true { let a = 1; _ = a; ' * n} {'}' * n} }}",
    "declarations": lambda n: f"fn f() {{ {' '.join(f'let a{i} = {i}; if true {{ _ = a{i}; }}' for i in range(n))} }}",
    "unions of names": lambda n: "\n".join(
        f"const k{i}: u32 = {i}; fn g{i}() -> u32 {{ return k{i}; }}" for i in range(n)
    ),
    "attributes": lambda n: "@compute " * n,
    "a long number": lambda n: f"const x = 1{'0' * n}.0 + 0x{'f' * n} + 1{'0' * n};",
    "many statements": lambda n: f"fn f(x: u32) -> u32 {{ var y = x; {'y = y * 3u;' * n} return y; }}",
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", DEEP)
@pytest.mark.parametrize("size", [3, 60, 101, 5000])
def test_depth_and_length_are_limited_without_a_crash(shape, size):
    take(DEEP[shape](size))


# Well-typed programs.

SCALARS = ["f32", "i32", "u32", "bool"]
NUMBERS = ["f32", "i32", "u32"]


class Program:
    """Makes a random compute shader that is well typed, if not always free of constant errors."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.counter = 0
        self.functions = []
        self.constants = []

    def name(self, stem):
        self.counter += 1
        return f"{stem}_{self.counter}"

    def type(self):
        scalar = self.rng.choice(SCALARS)
        return scalar if self.rng.random() < 0.7 else f"vec{self.rng.randint(2, 4)}<{scalar}>"

    def literal(self, type_):
        rng = self.rng
        return {
            "f32": lambda: rng.choice(
                ["0.5", "1.5f", "2", "1e-3", "0x1.8p3", "-1.25", "3.0", f"{rng.uniform(-9, 9):.6g}f"]
            ),
            "i32": lambda: rng.choice(["1", "-2", "3i", "0x10", "-7i", str(rng.randint(0, 99))]),
            "u32": lambda: rng.choice(["1", "2u", "0xffu", "31u", f"{rng.randint(1, 2**32 - 1)}u"]),
            "bool": lambda: rng.choice(["true", "false"]),
        }[type_]()

    def expression(self, type_, scope, depth):
        rng = self.rng
        names = [name for name, (kind, _) in scope.items() if kind == type_]
        if depth <= 0 or rng.random() < 0.15:
            if names and rng.random() < 0.8:
                return rng.choice(names)
            if type_.startswith("vec"):
                scalar = type_[5:-1]
                return f"{type_}({self.literal(scalar)})"
            return self.literal(type_)
        if type_.startswith("vec"):
            return self.vector(type_, scope, depth)
        return rng.choice(self.SCALAR_RULES[type_])(self, type_, scope, depth - 1)

    def vector(self, type_, scope, depth):
        rng, size, scalar = self.rng, int(type_[3]), type_[5:-1]
        sub = lambda t: self.expression(t, scope, depth - 1)  # noqa: E731
        choices = [
            lambda: f"{type_}({', '.join(sub(scalar) for _ in range(size))})",
            lambda: f"{type_}({sub(scalar)})",
            lambda: f"({sub(f'vec4<{scalar}>')}).{''.join(rng.choice('xyzw') for _ in range(size))}",
            lambda: f"select({sub(type_)}, {sub(type_)}, {sub('bool')})",
        ]
        if scalar == "bool":
            choices.append(lambda: f"(!({sub(type_)}))")
            choices.append(lambda: f"({sub(f'vec{size}<f32>')} < {sub(f'vec{size}<f32>')})")
        else:
            choices.append(lambda: f"({sub(type_)} {rng.choice('+-*')} {sub(type_)})")
            choices.append(lambda: f"({sub(type_)} {rng.choice('+-*')} {sub(scalar)})")
            choices.append(lambda: f"{rng.choice(['min', 'max'])}({sub(type_)}, {sub(type_)})")
        return rng.choice(choices)()

    def arithmetic(self, type_, scope, depth):
        operator = self.rng.choice("+-*" if type_ != "f32" else "+-*/")
        left, right = self.expression(type_, scope, depth), self.expression(type_, scope, depth)
        return f"({left}) {operator} ({right})" if self.rng.random() < 0.5 else f"(({left}) {operator} ({right}))"

    def division(self, type_, scope, depth):
        return f"({self.expression(type_, scope, depth)} {self.rng.choice('/%')} {self.rng.choice(['3', '5', '7'])})"

    def bits(self, type_, scope, depth):
        left, right = self.expression(type_, scope, depth), self.expression(type_, scope, depth)
        return f"(({left}) {self.rng.choice('&|^')} ({right}))"

    def shift(self, type_, scope, depth):
        return f"(({self.expression(type_, scope, depth)}) >> {self.rng.randint(0, 31)}u)"

    def compare(self, type_, scope, depth):
        kind = self.rng.choice(NUMBERS)
        left, right = self.expression(kind, scope, depth), self.expression(kind, scope, depth)
        return f"(({left}) {self.rng.choice(['<', '<=', '>', '>=', '==', '!='])} ({right}))"

    def logic(self, type_, scope, depth):
        left, right = self.expression("bool", scope, depth), self.expression("bool", scope, depth)
        return f"(({left}) {self.rng.choice(['&&', '||', '&', '|', '==', '!='])} ({right}))"

    def negate(self, type_, scope, depth):
        operator = {"bool": "!", "f32": "-", "i32": self.rng.choice("-~"), "u32": "~"}[type_]
        return f"({operator}({self.expression(type_, scope, depth)}))"

    def convert(self, type_, scope, depth):
        source = self.rng.choice([scalar for scalar in SCALARS if scalar != type_])
        names = [name for name, (kind, _) in scope.items() if kind == source]
        inner = self.rng.choice(names) if names else {"bool": "true"}.get(source, "1")
        return f"{type_}({inner})"

    def choose(self, type_, scope, depth):
        parts = [self.expression(one, scope, depth) for one in (type_, type_, "bool")]
        return f"select({', '.join(parts)})"

    def two(self, type_, scope, depth):
        names = ["min", "max"] + (["step"] if type_ == "f32" else [])
        left, right = self.expression(type_, scope, depth), self.expression(type_, scope, depth)
        return f"{self.rng.choice(names)}({left}, {right})"

    def one(self, type_, scope, depth):
        names = {"f32": ["abs", "floor", "ceil", "round", "fract", "sign", "saturate"], "i32": ["abs", "sign"],
                 "u32": ["abs", "countOneBits", "reverseBits", "firstLeadingBit"]}  # fmt: skip
        return f"{self.rng.choice(names[type_])}({self.expression(type_, scope, depth)})"

    def component(self, type_, scope, depth):
        size = self.rng.randint(2, 4)
        inner = self.expression(f"vec{size}<{type_}>", scope, depth)
        member = self.rng.choice([".x", ".y", "[0]", "[1u]"])
        return f"({inner}){member}"

    def reinterpret(self, type_, scope, depth):
        source = self.rng.choice([number for number in NUMBERS if number != type_])
        names = [name for name, (kind, is_variable) in scope.items() if kind == source and is_variable]
        return f"bitcast<{type_}>({self.rng.choice(names)})" if names else self.literal(type_)

    def call(self, type_, scope, depth):
        fitting = [function for function in self.functions if function[1] == type_]
        if not fitting:
            return self.literal(type_)
        name, _, parameters = self.rng.choice(fitting)
        return f"{name}({', '.join(self.expression(param, scope, depth - 1) for param in parameters)})"

    DEPTH = 3
    COMMON = (negate, convert, choose, component, call)
    SCALAR_RULES = MappingProxyType(
        {
            "f32": [arithmetic, arithmetic, two, one, reinterpret, *COMMON],
            "i32": [arithmetic, arithmetic, division, bits, shift, two, one, reinterpret, *COMMON],
            "u32": [arithmetic, arithmetic, division, bits, shift, two, one, reinterpret, *COMMON],
            "bool": [compare, compare, logic, *COMMON],
        }
    )

    def statements(self, scope, depth, in_loop=False):
        lines = []
        scope = dict(scope)
        declared = {*scope} if depth == self.DEPTH else set()
        for _ in range(self.rng.randint(1, 4)):
            lines.append(self.statement(scope, depth, in_loop, declared))
        return " ".join(lines)

    def statement(self, scope, depth, in_loop, declared):
        rng = self.rng
        kind = rng.choice(["let", "var", "assign", "assign", "if", "for", "while", "loop", "switch", "block", "skip"])
        if kind in ("let", "var"):
            type_ = self.type()
            name = self.name("v") if rng.random() < 0.8 or not scope else rng.choice(list(scope))
            if name in declared:
                name = self.name("v")
            declared.add(name)
            annotation = f": {type_}"
            value = self.expression(type_, scope, 3)
            scope[name] = (type_, kind == "var")
            return f"{kind} {name}{annotation} = {value};"
        variables = [(name, one) for name, (one, is_variable) in scope.items() if is_variable]
        if kind == "assign" and variables:
            name, type_ = rng.choice(variables)
            operators = ["="] if "bool" in type_ else ["=", "+=", "-=", "*="]
            return f"{name} {rng.choice(operators)} {self.expression(type_, scope, 3)};"
        if depth <= 0 or kind in ("assign", "skip"):
            if in_loop and rng.random() < 0.5:
                return f"if {self.expression('bool', scope, 1)} {{ {rng.choice(['break', 'continue'])}; }}"
            return f"_ = {self.expression(self.type(), scope, 2)};"
        inner = lambda loop=in_loop: self.statements(scope, depth - 1, loop)  # noqa: E731
        condition = self.expression("bool", scope, 2)
        counter = self.name("i")
        if kind == "if":
            other = rng.choice(["", f" else {{ {inner()} }}", f" else if {condition} {{ {inner()} }}"])
            return f"if {condition} {{ {inner()} }}{other}"
        if kind == "for":
            return f"for (var {counter} = 0; {counter} < {rng.randint(1, 5)}; {counter}++) {{ {inner(True)} }}"
        if kind == "while":
            return f"var {counter} = 0; while {counter} < 4 && {condition} {{ {counter}++; {inner(True)} }}"
        if kind == "loop":
            return (f"var {counter} = 0u; loop {{ {inner(False)} continuing {{ {counter} += 1u; "
                    f"break if {counter} > 3; }} }}")  # fmt: skip
        if kind == "switch":
            return (f"switch {self.expression(rng.choice(['i32', 'u32']), scope, 1)} {{ case 1: {{ {inner(False)} }} "
                    f"case 2, 3: {{ }} default: {{ {inner(False)} }} }}")  # fmt: skip
        return f"{{ {inner()} }}"

    def text(self):
        rng = self.rng
        parts = []
        scope = {}
        for _ in range(rng.randint(0, 3)):
            name, type_ = self.name("c"), rng.choice(SCALARS)
            parts.append(f"const {name}: {type_} = {self.literal(type_)};")
            scope[name] = (type_, False)
        for _ in range(rng.randint(0, 3)):
            name, result = self.name("f"), self.type()
            parameters = [self.type() for _ in range(rng.randint(1, 3))]
            names = [self.name("p") for _ in parameters]
            inner = {**scope, **{name: (type_, False) for name, type_ in zip(names, parameters, strict=True)}}
            body = self.statements(inner, self.DEPTH)
            head = ", ".join(f"{name}: {type_}" for name, type_ in zip(names, parameters, strict=True))
            parts.append(f"fn {name}({head}) -> {result} {{ {body} return {self.expression(result, inner, 3)}; }}")
            self.functions.append((name, result, parameters))
        parts.append("@group(0) @binding(0) var<storage, read_write> buffer: array<u32>;")
        inner = {**scope, "n": ("u32", False), "x": ("f32", True), "k": ("i32", True), "b": ("bool", True)}
        parts.append(
            "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) n: u32) { var x = f32(n); "
            f"var k = i32(n); var b = n > 3; {self.statements(inner, self.DEPTH)} "
            f"buffer[n] = {self.expression('u32', inner, 3)}; }}"
        )
        return "\n".join(parts)


@pytest.mark.slow
@fuzz
@given(st.integers(0, 2**32))
def test_well_typed_programs_pass_and_naga_takes_what_is_printed(naga, seed):
    text = Program(seed).text()
    printed = take(text)
    if printed is not None:
        assert naga(printed) is None, printed


@settings(fuzz, max_examples=max(EXAMPLES // 4, 1))
@given(st.integers(0, 2**32))
def test_what_is_printed_computes_what_was_written(run, seed):
    text = Program(seed).text()
    printed = take(text)
    if printed is not None:
        assert run(printed) == run(text), printed


def test_most_well_typed_programs_pass():
    assert sum(take(Program(seed).text()) is not None for seed in range(60)) > 40


@pytest.mark.slow
@fuzz
@given(st.integers(0, 2**32))
def test_what_is_printed_from_the_text_alone_reads_back_the_same(seed):
    module = parse(Program(seed).text(), "f.wgsl")
    printed = print_wgsl(module)
    assert print_wgsl(parse(printed, "f.wgsl")) == printed
