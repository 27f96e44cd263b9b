"""Printed WGSL parses to the same tree, every number to the same bits, and naga accepts it."""

import struct
import textwrap

import pytest
from hypothesis import example, given, settings, strategies as st

from optirs_web.wgsl import check, link, parse, print_wgsl
from optirs_web.wgsl.print_wgsl import print_expression
from optirs_web.wgsl.syntax import Literal, Position
from optirs_web.wgsl.tree import walk
from optirs_web.wgsl.types import F16, F32, I32, U32

HERE = Position("t.wgsl", 1, 1)


def without_positions(module):
    """The tree as a list of nodes, each with all but its place and what the checker knows of it."""
    plain = (str, bool, int, float, type(None))
    rows = []
    for node in walk(module.declarations):
        kept = {name: getattr(node, name) for name in type(node).__slots__ if name not in ("position", "type", "kind")}
        rows.append((type(node).__name__, {name: value for name, value in kept.items() if isinstance(value, plain)}))
    return module.enables, rows


FOR_DAWN_ALONE = "lib/matrices.wgsl"


def test_parsed_text_reads_back_the_same(shaders, kernels):
    for name, text in {**shaders, **kernels}.items():
        host = "tint" if name == FOR_DAWN_ALONE else "naga"
        module = parse(text, name)
        again = parse(print_wgsl(module, host), name)
        if "f16" not in module.enables and host == "naga":
            assert without_positions(again) == without_positions(module)
        assert print_wgsl(again, host) == print_wgsl(module, host)


@pytest.mark.parametrize("host", ["naga", "tint"])
def test_linked_text_reads_back_the_same(shaders, kernels, host):
    for name, text in {**shaders, **kernels}.items():
        if name == FOR_DAWN_ALONE and host == "naga":
            continue
        module = link(parse(text, name))
        printed = print_wgsl(module, host)
        again = parse(printed, name)
        check(again)
        assert print_wgsl(again, host) == printed


def test_naga_takes_every_shader_and_kernel(shaders, kernels, naga):
    for name, text in {**shaders, **kernels}.items():
        if name == FOR_DAWN_ALONE:
            continue
        printed = print_wgsl(link(parse(text, name)))
        assert naga(printed) is None, printed


@pytest.mark.parametrize(
    "text",
    [
        "a + b * c", "(a + b) * c", "a - (b - c)", "a - b - c", "a / (b * c)", "a % b * c", "(a << b) + c",
        "a << (b + c)",
        "(a & b) == c", "a & b & c", "a & (b | c)", "(a + b) & c", "(a < b) == c", "-a * b",
        "-(a * b)", "-(-a)", "!!a", "!(a && b)", "~(a | b)", "(a && b) || c", "a && (b || c)", "(a + b).x", "(-a)[0]",
        "f((a < b), c > d)", "f(a, b < c)", "a < (b >> c)", "a > b >> c", "(a < b) & c", "array<f32, a + b>()",
        "array<f32, (a << b)>()", "f(a).x[b + c]", "a == b + c", "(a == b) != c", "a ^ b ^ c",
    ],
)  # fmt: skip
def test_parentheses_are_the_fewest_that_wgsl_takes(text):
    value = parse(f"const x = {text};", "t.wgsl").declarations[0].value
    assert print_expression(value) == text


def read(text, type_name):
    """The number that a WGSL tool reads in a place of that type."""
    module = parse(f"enable f16; const x: {type_name} = {text};", "t.wgsl")
    check(module)
    return module.declarations[0].value


def bits(value, layout):
    return struct.pack(layout, value)


@settings(max_examples=300)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["", "f"]))
@example(0x7F7FFFFF, "f")
@example(0x80000000, "")
@example(0x00000001, "f")
@example(0x00800000, "")
@example(0x3DCCCCCD, "")
def test_every_f32_reads_back_bit_for_bit(pattern, suffix):
    (value,) = struct.unpack("<f", struct.pack("<I", pattern))
    if value - value != 0:
        return  # WGSL has no literals for NaN and infinity
    text = print_expression(Literal(HERE, value, suffix, F32))
    actual = read(text, "f32")
    number = actual.value if isinstance(actual, Literal) else -actual.operand.value
    assert bits(number, "<f") == bits(value, "<f"), text
    assert bits(float(text.removesuffix("f")), "<f") == bits(value, "<f"), text
    assert text.endswith("f") == (suffix == "f")
    assert "." in text or "e" in text


@given(st.integers(0, 0x7BFF), st.booleans())
def test_every_f16_reads_back_bit_for_bit(pattern, is_negative):
    (value,) = struct.unpack("<e", struct.pack("<H", pattern | is_negative << 15))
    text = print_expression(Literal(HERE, value, "", F16))
    assert text.endswith("h")
    assert bits(float(text[:-1]), "<e") == bits(value, "<e")


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (Literal(HERE, 0.1), "0.1"),
        (Literal(HERE, 0.10000000149011612, "f", F32), "0.1f"),
        (Literal(HERE, 0.10000000149011612, "", F32), "0.1"),
        (Literal(HERE, 3.0, "", F32), "3.0"),
        (Literal(HERE, 1e10, "", F32), "10000000000.0"),
        (Literal(HERE, 1, "", I32), "1"),
        (Literal(HERE, 1, "", U32), "1u"),
        (Literal(HERE, 1), "1"),
        (Literal(HERE, 0x80000000, "u", U32), "0x80000000u"),
        (Literal(HERE, -(2**31), "i", I32), "i32(-2147483648)"),
        (Literal(HERE, -(2**31), "", I32), "-2147483648"),
        (Literal(HERE, True), "true"),
    ],
)
def test_literals_are_printed_short_and_typed(literal, text):
    assert print_expression(literal) == text


def test_text_is_readable():
    source = """
    alias V=vec4f;struct S{a:f32,b:array<vec2<u32>,3>}const A=1;const B:u32=2u;override c=true;
    @group(0)@binding(1)var<storage,read_write>s:array<S>;var<private>p:f32=1.0;
    fn f(x:f32)->f32{var i=0;for(;i<3;i++){if(x>1.0){continue;}else if x<0.0{break;}else{_=x;}}
    loop{i-=1;if i<0{break;}continuing{i+=2;break if i>9;}}while true{}{}
    switch i{case 1,2:{return 1.0;}case default:{}}return x;}
    @compute @workgroup_size(8,8)fn main(@builtin(workgroup_id)w:vec3u){s[0].a=f(p);}
    """
    module = parse(source, "t.wgsl")
    check(module)
    assert print_wgsl(module) == textwrap.dedent("""\
        alias V = vec4f;

        struct S {
            a: f32,
            b: array<vec2<u32>, 3>,
        }

        const A = 1;
        const B: u32 = 2u;

        override c = true;

        @group(0) @binding(1) var<storage, read_write> s: array<S>;
        var<private> p: f32 = 1.0;

        fn f(x: f32) -> f32 {
            var i = 0;
            for (; i < 3; i++) {
                if x > 1.0 {
                    continue;
                } else if x < 0.0 {
                    break;
                } else {
                    _ = x;
                }
            }
            loop {
                i--;
                if i < 0 {
                    break;
                }
                continuing {
                    i += 2;
                    break if i > 9;
                }
            }
            while true {}
            {}
            switch i {
                case 1, 2: {
                    return 1.0;
                }
                default: {}
            }
            return x;
        }

        @compute @workgroup_size(8, 8)
        fn main(@builtin(workgroup_id) w: vec3u) {
            s[0].a = f(p);
        }
        """)


def test_extensions_are_written_for_the_host(kernels):
    module = link(parse(kernels["subgroups"], "t.wgsl"))
    assert print_wgsl(module, "naga").startswith("enable f16;\n\n")
    assert print_wgsl(module, "tint").startswith("enable f16;\nenable subgroups;\n\n")
    unused = link(parse("enable f16; fn f(x: u32) -> u32 { return x; }", "t.wgsl"))
    assert "enable" not in print_wgsl(unused, "tint")
    values = "@compute @workgroup_size(1) fn f(@builtin(subgroup_size) n: u32) { _ = n; }"
    assert "enable subgroups;" in print_wgsl(link(parse(values, "t.wgsl")), "tint")
