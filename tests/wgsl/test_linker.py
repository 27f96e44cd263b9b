"""Imports, overrides, the removal of what constants decide, and what is kept."""

import textwrap

import pytest

from optirs_web.errors import ShaderError
from optirs_web.wgsl import check, link, package_loader, parse, print_wgsl
from optirs_web.wgsl.syntax import Import, Override


def linked(text, files=None, **arguments):
    """The linked text; imports come from `files`, by path."""
    modules = {tuple(path.split("/")): parse(one, f"{path}.wgsl") for path, one in (files or {}).items()}
    return link(parse(text, "t.wgsl"), modules.__getitem__, **arguments)


def printed(text, files=None, **arguments):
    return print_wgsl(linked(text, files, **arguments)).strip()


def clean(text):
    return textwrap.dedent(text).strip()


def names(module):
    return [declaration.name for declaration in module.declarations]


LIBRARY = {
    "lib/a": """
        import package::lib::b::scale;
        const TWO: f32 = 2.0;
        const UNUSED = 3.0;
        struct Pair { high: f32, low: f32 }
        fn helper(x: f32) -> Pair { return Pair(x * TWO, scale(x)); }
        fn twice(x: f32) -> f32 { let helper_result = helper(x); return helper_result.high; }
        fn other() -> f32 { return UNUSED; }
    """,
    "lib/b": "fn scale(x: f32) -> f32 { return helper(x) * 0.5; } fn helper(x: f32) -> f32 { return x; }",
}


def test_an_import_brings_what_it_stands_on_and_no_more():
    module = linked("import package::lib::a::twice; fn f(x: f32) -> f32 { return twice(x); }", LIBRARY)
    assert names(module) == ["scale", "b_helper", "TWO", "Pair", "helper", "twice", "f"]
    check(module)


def test_a_helper_gives_way_to_names_of_the_module():
    text = "import package::lib::a::twice; fn helper() -> f32 { return twice(1.0); } const scale = 1; const TWO = 2;"
    module = linked(text, LIBRARY, roots=["helper", "scale", "TWO"])
    assert names(module) == ["b_scale", "b_helper", "a_TWO", "Pair", "a_helper", "twice", "helper", "scale", "TWO"]
    check(module)
    assert print_wgsl(module) == print_wgsl(linked(text, LIBRARY, roots=["helper", "scale", "TWO"]))


def test_a_renamed_helper_is_not_caught_by_a_local_of_that_name():
    files = {"lib/a": "const K: f32 = 1.0; fn read(a_K: f32) -> f32 { return a_K + K; }"}
    text = printed("import package::lib::a::read; const K: f32 = 2.0; fn f() -> f32 { return read(K); }", files)
    assert "return a_K + a_K2;" in text


def test_only_the_reference_to_the_module_is_renamed():
    files = {"lib/a": "const K: f32 = 1.0; fn read(x: f32) -> f32 { let y = K; { let K = x; return K + y; } }"}
    text = "import package::lib::a::read; const K: f32 = 2.0; fn f() -> f32 { return read(K); }"
    assert "let y = a_K;" in printed(text, files)
    assert "return K + y;" in printed(text, files)


def test_the_condition_of_an_unrolled_loop_is_renamed_too():
    files = {
        "lib/a": """
        const K = true;
        fn twice(x: f32) -> f32 { var y = x; @unroll(K) for (var i = 0u; i < 1u; i++) { y += x; } return y; }
    """
    }
    text = "import package::lib::a::twice; const K = 7; fn f() -> f32 { return twice(f32(K)); }"
    assert "for" not in printed(text, files)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("import package::lib::a::twice;\nfn twice() {}", "t.wgsl:1:1", "declared at t.wgsl:2:1"),
        ("import package::lib::a::helper;\nimport package::lib::b::helper;", "t.wgsl:2:1", "from two files"),
        ("import package::lib::a::twise;", "t.wgsl:1:1", "did you mean 'twice'"),
        ("import package::lib::c::twice;", "t.wgsl:1:1", "no file lib/c.wgsl"),
        ("import package::lib::a::scale;", "t.wgsl:1:1", "declares no 'scale'"),
        ("fn f() { _ = g(); }", "t.wgsl:1:14", "there is no 'g'"),
        ("fn f() {} fn f() {}", "t.wgsl:1:11", "declared twice"),
    ],
)
def test_what_cannot_be_imported_is_refused_at_the_import(text, place, words):
    with pytest.raises(ShaderError) as caught:
        linked(text, LIBRARY)
    assert str(caught.value).startswith(f"{place}: ")
    assert words in str(caught.value)


def test_an_error_in_an_imported_file_is_reported_there():
    with pytest.raises(ShaderError, match=r"^lib/a\.wgsl:2:26: "):
        linked("import package::lib::a::f;", {"lib/a": "\nfn f() -> f32 { return 1 + true; }"})


def test_files_may_import_each_other():
    files = {
        "lib/a": "import package::lib::b::g; fn f(x: f32) -> f32 { return g(x); }",
        "lib/b": "import package::lib::a::K; fn g(x: f32) -> f32 { return x; } fn K() -> f32 { return 1.0; }",
    }
    files["lib/a"] += " const K: f32 = 1.0;"
    with pytest.raises(ShaderError, match="declared at"):
        linked("import package::lib::a::f;", files)
    files["lib/b"] = files["lib/b"].replace("fn K() -> f32 { return 1.0; }", "").replace("x;", "x * K;")
    assert names(linked("import package::lib::a::f; fn m() -> f32 { return f(1.0); }", files)) == ["g", "f", "K", "m"]


def test_the_package_loader_reads_the_shaders_once():
    load = package_loader()
    assert load(("lib", "math")) is load(("lib", "math"))
    assert load(("lib", "math")).file == "shaders/lib/math.wgsl"
    with pytest.raises(ShaderError, match=r"^t\.wgsl:1:1: there is no file lib/nothing\.wgsl"):
        link(parse("import package::lib::nothing::x;", "t.wgsl"))


# Overrides and folding.

FLAGS = """
override amsgrad: bool = false;
override mode = 2u;
override scale: f32 = 0.5;

fn update(x: f32, y: f32) -> f32 {
    var z = x;
    let unused = y * 3.0;
    if amsgrad {
        let peak = max(x, y);
        z = peak;
    } else if mode == 1u {
        return y;
    }
    if !amsgrad && x > 0.0 {
        z += select(1.0, scale, mode > 1u);
    }
    return z;
}
"""


def test_a_flag_leaves_no_trace():
    assert printed(FLAGS) == clean("""
        const scale: f32 = 0.5;

        fn update(x: f32, y: f32) -> f32 {
            var z = x;
            if x > 0.0 {
                z += scale;
            }
            return z;
        }
        """)
    assert printed(FLAGS, constants={"amsgrad": True}) == clean("""
        fn update(x: f32, y: f32) -> f32 {
            var z = x;
            let peak = max(x, y);
            z = peak;
            return z;
        }
        """)
    assert printed(FLAGS, constants={"mode": 1, "scale": 2}) == clean("""
        fn update(x: f32, y: f32) -> f32 {
            var z = x;
            return y;
        }
        """)


def test_linking_leaves_the_module_as_it_was():
    module = parse(FLAGS, "t.wgsl")
    before = repr(module)
    first = print_wgsl(link(module, constants={"amsgrad": True}))
    assert repr(module) == before
    assert print_wgsl(link(module, constants={"amsgrad": True})) == first


def test_no_import_and_no_override_is_left(shaders):
    for name, text in shaders.items():
        module = link(parse(text, name))
        assert not any(isinstance(declaration, Import | Override) for declaration in module.declarations)


@pytest.mark.parametrize(
    ("constants", "place", "words"),
    [
        ({"amsgard": True}, "1:1", "there are amsgrad, mode, scale"),
        ({"amsgrad": 1}, "2:1", "is bool, and 1 is not"),
        ({"mode": True}, "3:1", "is u32, and True is not"),
        ({"mode": 1.5}, "3:1", "is u32, and 1.5 is not"),
        ({"mode": -1}, "3:1", "out of range of u32"),
        ({"scale": "x"}, "4:1", "is f32, and 'x' is not"),
        ({"scale": 1e39}, "4:1", "out of range of f32"),
        ({"scale": float("nan")}, "4:1", "not a number"),
    ],
)
def test_wrong_constants_are_refused(constants, place, words):
    with pytest.raises(ShaderError) as caught:
        linked(FLAGS, constants=constants)
    assert str(caught.value).startswith(f"t.wgsl:{place}: ")
    assert words in str(caught.value)


def test_an_override_without_a_default_must_be_set():
    text = (
        "override size: u32; var<workgroup> w: array<f32, size>; @compute @workgroup_size(size) fn f() { w[0] = 1.0; }"
    )
    with pytest.raises(ShaderError, match=r"constants="):
        linked(text)
    assert "const size: u32 = 64u;" in printed(text, constants={"size": 64})


@pytest.mark.parametrize(
    ("body", "rest"),
    [
        ("if true { return 1u; } return 2u;", "return 1u;"),
        ("if false { return 1u; } return 2u;", "return 2u;"),
        ("while false { g(); } return 2u;", "return 2u;"),
        ("var x = 1u; if true { var x = 2u; x++; } return x;", "var x = 1u; { var x = 2u; x++; } return x;"),
        ("if true { var y = 2u; y++; } return n;", "var y = 2u; y++; return n;"),
        ("if true { var n = 2u; n++; } return 1u;", "{ var n = 2u; n++; } return 1u;"),
        ("if true { let y = n; _ = y; } let y = 2u; return y;", "{ let y = n; _ = y; } let y = 2u; return y;"),
        ("let y = n; let z = y; return n;", "return n;"),
        ("let y = g(); return n;", "let y = g(); return n;"),
        ("return select(g(), n, true);", "return select(g(), n, true);"),
        ("return select(h(), n, true);", "return n;"),
        ("const_assert 1 < 2; return n;", "return n;"),
        ("const k = 3; return k;", "return 3u;"),
        ("if n > 1u || true { return 1u; } return n;", "return 1u;"),
        ("if g() > 1u && false { return 1u; } return n;", "if g() > 1u && false { return 1u; } return n;"),
        ("if h() > 1u || false { return 1u; } return n;", "if h() > 1u { return 1u; } return n;"),
        ("if n > 1u { if false { g(); } } return n;", "return n;"),
        (
            "switch n { case 1: { if true { break; } } default: { } } return n;",
            "switch n { case 1u: { break; } default: {} } return n;",
        ),
        ("loop { if true { break; } } return n;", "loop { break; } return n;"),
    ],
)  # fmt: skip
def test_folding_keeps_the_meaning(body, rest):
    before = "var<private> state: u32; fn g() -> u32 { state++; return state; } fn h() -> u32 { return 1u; }"
    text = printed(f"{before} fn f(n: u32) -> u32 {{ {body} }}", roots=["f"])
    actual = text[text.index("fn f(n") :].split("{", 1)[1].rsplit("}", 1)[0]
    assert " ".join(actual.split()) == rest


def test_a_loop_that_loses_its_exit_is_refused():
    with pytest.raises(ShaderError, match=r"^t\.wgsl:1:\d+: with these constants this loop never ends"):
        linked("override stop: bool = true; fn f() { loop { if stop { break; } } }", constants={"stop": False})


# Loops that are written out.


@pytest.mark.parametrize(
    ("loop", "rest"),
    [
        ("@unroll for (var i = 0u; i < 3u; i++) { n += i; }", "n += 0u; n += 1u; n += 2u;"),
        ("@unroll for (var i = 1u; i < TILE; i += 2u) { n += i * TILE; }", "n += 4u; n += 12u;"),
        ("@unroll for (var i = 0u; i < 2u; i++) { let x = n + i; n = x; }",
         "let x = n + 0u; n = x; { let x = n + 1u; n = x; }"),
        ("@unroll for (var i = 0u; i < 2u; i++) { @unroll for (var j = 0u; j < 2u; j++) { n += i * 2u + j; } }",
         "n += 0u; n += 1u; n += 2u; n += 3u;"),
        ("@unroll(TILE > 4u) for (var i = 0u; i < 2u; i++) { n += i; }",
         "for (var i = 0u; i < 2u; i++) { n += i; }"),
        ("@unroll(TILE == 4u) for (var i = -1; i < 1; i++) { n += u32(i + 1); }", "n += u32(0i); n += u32(1i);"),
        ("@unroll for (var i = 3u; i < 3u; i++) { n += i; }", ""),
    ],
)  # fmt: skip
def test_an_unrolled_loop_is_its_iterations(loop, rest):
    text = printed(f"override TILE: u32 = 4u; fn f(m: u32) -> u32 {{ var n = m; {loop} return n; }}", roots=["f"])
    actual = " ".join(text[text.index("var n = m;") :].removeprefix("var n = m;").split())
    assert actual == f"{rest} return n; }}".strip()
    check(parse(text, "t.wgsl"))


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        ("@unroll for (var i = 0u; i < n; i++) { n += i; }", "between constants"),
        ("@unroll for (var i = 9u; i > 0u; i--) { n += i; }", "between constants"),
        ("@unroll for (var i = 0u; i < 65u; i++) { n += i; }", "64 iterations at most, not 65"),
        ("@unroll for (var i = 0u; i < 3u; i++) { if n > 1u { break; } n += i; }", "no break"),
        ("@unroll for (var i = 0u; i < 3u; i++) { i += n; }", "sets it alone"),
        ("@unroll for (var i = 0u; i < 3u; i++) { var i = n; n += i; }", "sets it alone"),
        ("@unroll(n > 1u) for (var i = 0u; i < 3u; i++) { n += i; }", "the condition of @unroll"),
        ("@unroll(1u) for (var i = 0u; i < 3u; i++) { n += i; }", "must be bool"),
        ("@unroll while n > 1u { n--; }", "before a for"),
        ("@inline for (var i = 0u; i < 3u; i++) { n += i; }", "the only attribute"),
    ],
)
def test_what_cannot_be_unrolled_is_refused(loop, words):
    with pytest.raises(ShaderError, match=words):
        linked(f"fn f(m: u32) -> u32 {{ var n = m; {loop} return n; }}", roots=["f"])


SHARED = (
    "override BY_WORDS: bool = false; @group(0) @binding(0) var<storage, read_write> x: array<f32>;"
    "@group(0) @binding(0) var<storage, read_write> words: array<u32>;"
    "@compute @workgroup_size(1) fn f() { if BY_WORDS { words[0] = 1u; } else { x[0] = 1.0; } BOTH }"
)


@pytest.mark.parametrize(("by_words", "kept"), [(False, "x"), (True, "words")])
def test_constants_may_decide_which_binding_of_a_place_is_there(by_words, kept):
    module = linked(SHARED.replace("BOTH", ""), constants={"BY_WORDS": by_words})
    assert {"x", "words"} & set(names(module)) == {kept}
    check(module)


def test_two_bindings_of_a_place_are_refused_where_both_are_used():
    with pytest.raises(ShaderError, match="share one @group and @binding"):
        linked(SHARED.replace("BOTH", "x[1] = 2.0;"), constants={"BY_WORDS": True})


# What is kept.


def test_entry_points_are_kept_with_what_they_reach():
    text = """
        struct A { x: f32 } struct B { x: f32 }
        const SIZE = 64u; const OTHER = 1u;
        @group(0) @binding(0) var<storage, read_write> a: array<A>;
        @group(0) @binding(1) var<storage, read_write> b: array<B>;
        fn f() -> u32 { return 1u; } fn g() {}
        @compute @workgroup_size(SIZE) fn main() { a[f()].x = 1.0; }
    """
    assert names(linked(text)) == ["A", "SIZE", "a", "f", "main"]
    assert names(linked(text, roots=["g", "b"])) == ["B", "b", "g"]
    assert names(linked("struct A { x: f32 } const K = 1; fn f() {} fn g() {}")) == ["A", "f", "g"]
    assert names(linked("const K = 1; const L = K;")) == ["K", "L"]
    with pytest.raises(ShaderError, match="there is no 'nothing' to keep"):
        linked(text, roots=["nothing"])


# Imports that a flag chooses.

CHOSEN = {
    ("lib", "left"): "fn side() -> f32 { return 1.0; }",
    ("lib", "right"): "fn side() -> f32 { return 2.0; }",
}
CHOOSING = """
@if(LEFT) import package::lib::left::side;
@else import package::lib::right::side;
fn f() -> f32 { return side(); }
"""


@pytest.mark.parametrize(
    ("constants", "value"), [({"LEFT": True}, "1.0"), ({"LEFT": False}, "2.0"), ({}, "2.0"), (None, "2.0")]
)
def test_a_flag_chooses_between_imports_and_the_other_file_is_not_read(constants, value):
    read = []

    def load(path):
        read.append(path)
        return parse(CHOSEN[path], "/".join(path))

    linked = link(parse(CHOOSING, "t.wgsl"), load, constants)
    assert f"return {value}" in print_wgsl(linked)
    assert read == [("lib", "left" if value == "1.0" else "right")]


def test_a_condition_is_printed_as_it_stands():
    assert [line for line in print_wgsl(parse(CHOOSING, "t.wgsl")).splitlines() if "import" in line] == [
        "@if(LEFT) import package::lib::left::{side};",
        "@else import package::lib::right::{side};",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@else import package::lib::left::side;", "@else follows an import with @if"),
        ("@if(A) import package::lib::left::f; fn g() { } @else import package::lib::right::f;", "@else follows"),
        ("@if(A) @else import package::lib::left::side;", "an import has one condition"),
        ("@if(1) import package::lib::left::side;", "@if takes the name of a flag"),
        ("@elif(A) import package::lib::left::side;", "@elif follows an import with @if"),
        (
            "@if(A) import package::lib::a::f; @else import package::lib::b::f; @elif(B) import package::lib::c::f;",
            "@elif follows an import with @if",
        ),
        ("@if(A) fn f() { }", "'fn' does not take this attribute; leave @if out"),
        ("@compute import package::lib::left::side;", "'import' does not take this attribute; leave @compute out"),
        ("@else const x = 1;", "'const' does not take this attribute; leave @else out"),
    ],
)
def test_conditions_that_mean_nothing_are_refused(text, message):
    with pytest.raises(ShaderError, match=message):
        parse(text, "t.wgsl")


def test_a_file_that_is_imported_has_conditions_too_which_the_same_flags_decide():
    files = {**CHOSEN, ("lib", "both"): CHOOSING}
    module = parse("import package::lib::both::f; fn g() -> f32 { return f(); }", "t.wgsl")
    for flag, value in ((True, "1.0"), (False, "2.0")):
        linked = link(module, lambda path: parse(files[path], "/".join(path)), {"LEFT": flag})
        assert f"return {value}" in print_wgsl(linked)


ELIF = """
@if(LEFT) import package::lib::left::side;
@elif(RIGHT) import package::lib::right::side;
@else import package::lib::neither::side;
fn f() -> f32 { return side(); }
"""


@pytest.mark.parametrize(
    ("flags", "value"), [(["LEFT"], "1.0"), (["LEFT", "RIGHT"], "1.0"), (["RIGHT"], "2.0"), ([], "3.0")]
)
def test_the_first_flag_of_several_that_is_set_chooses(flags, value):
    files = {**CHOSEN, ("lib", "neither"): "fn side() -> f32 { return 3.0; }"}
    module = parse(ELIF, "t.wgsl")
    linked = link(module, lambda path: parse(files[path], "/".join(path)), dict.fromkeys(flags, True))
    assert f"return {value}" in print_wgsl(linked)
    assert [line.partition(" import")[0] for line in print_wgsl(module).splitlines()[:3]] == [
        "@if(LEFT)",
        "@elif(RIGHT)",
        "@else",
    ]


# Built-in values of subgroups that no function uses.

TOLD = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
fn used(a: u32, b: u32) -> u32 { return b; }
fn unused(a: u32, b: u32) -> u32 { return a; }
@compute @workgroup_size(32)
fn main(
    @builtin(local_invocation_index) lane: u32, @builtin(subgroup_id) id: u32, @builtin(num_subgroups) count: u32,
) { x[lane] = CALL; }
"""


@pytest.mark.parametrize(
    ("call", "told", "printed"),
    [
        ("unused(lane, id)", [], "unused(lane)"),
        ("used(lane, id)", ["subgroup_id"], "used(lane, id)"),
        ("unused(lane, id + count)", ["subgroup_id", "num_subgroups"], "unused(lane, id + count)"),
        ("unused(lane, count) + id", ["subgroup_id"], "unused(lane) + id"),
        ("unused(1u, id) + unused(2u, id)", ["subgroup_id"], "unused(1u, id) + unused(2u, id)"),
        ("lane", [], "lane"),
    ],
)
def test_an_entry_point_is_not_told_of_its_subgroup_what_nobody_uses(call, told, printed):
    text = print_wgsl(link(parse(TOLD.replace("CALL", call), "t.wgsl")), "tint")
    assert f"x[lane] = {printed};" in text
    assert [name for name in ("subgroup_id", "num_subgroups") if name in text] == told
    assert ("enable subgroups;" in text) == bool(told)
