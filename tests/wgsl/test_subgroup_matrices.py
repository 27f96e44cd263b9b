"""Subgroup matrices in the front end: types, errors, printing, and the targets that refuse them."""

import pytest

from optirs_web.errors import ShaderError
from optirs_web.wgsl import link, parse, print_wgsl
from optirs_web.wgsl.lints import lint
from optirs_web.wgsl.print_c import print_c

HEAD = """
enable f16;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> c: array<f32>;
@group(0) @binding(2) var<storage, read> halves: array<f16>;
@group(0) @binding(3) var<storage, read> vectors: array<vec4<f32>>;
alias Left = subgroup_matrix_left<f32, 8, 16>;
alias Right = subgroup_matrix_right<f32, 4, 8>;
const WIDTH = 8u;

@compute @workgroup_size(128)
fn main(@builtin(subgroup_id) id: u32) {
    var left = subgroupMatrixLoad<Left, row_major>(&a, id * 64u, 8u);
    let right = subgroupMatrixLoad<subgroup_matrix_right<f32, 4, WIDTH>, col_major>(&a, 0, WIDTH);
    var sum = subgroup_matrix_result<f32, 4, 16>();
BODY
}
"""


def linked(body):
    return link(parse(HEAD.replace("BODY", body), "t.wgsl"))


STATEMENTS = [
    "sum = subgroupMatrixMultiplyAccumulate(left, right, sum);",
    "sum = subgroupMatrixMultiply<f32>(left, right);",
    "subgroupMatrixStore<row_major>(&c, 1u, subgroupMatrixMultiply<f32>(left, right), 4u);",
    "subgroupMatrixStore<col_major>(&c, id, left, 16u);",
    "var four: array<subgroup_matrix_result<f32, 4, 16>, 4>; four[id] = sum; sum = four[1];",
    "left = Left(f32(id));",
    "let half = subgroupMatrixLoad<subgroup_matrix_left<f16, 8, 8>, row_major>(&halves, id, 8u);"
    " let other = subgroupMatrixLoad<subgroup_matrix_right<f16, 8, 8>, row_major>(&halves, id, 8u);"
    " _ = subgroupMatrixMultiplyAccumulate(half, other, subgroup_matrix_result<f32, 8, 8>(0.5));",
    "var pair = array<subgroup_matrix_result<f32, 4, 16>, 2>(); pair[0] = sum;",
]


@pytest.mark.parametrize("body", STATEMENTS)
def test_what_is_printed_is_read_as_the_same_and_enables_the_extension(body):
    text = print_wgsl(linked(body), "tint")
    enabled = ["chromium_experimental_subgroup_matrix", *(["f16"] if "<f16, " in body else []), "subgroups"]
    assert [line for line in text.splitlines() if line.startswith("enable")] == [f"enable {one};" for one in enabled]
    assert "subgroupMatrixLoad<Left, row_major>(&a, id * 64u, 8u)" in text
    assert "subgroupMatrixLoad<subgroup_matrix_right<f32, 4, WIDTH>, col_major>(&a, 0u, WIDTH)" in text
    assert print_wgsl(link(parse(text, "t.wgsl")), "tint") == text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sum = subgroupMatrixMultiplyAccumulate(right, left, sum);", "argument 1 .* must be a subgroup_matrix_left"),
        ("sum = subgroupMatrixMultiplyAccumulate(left, right, left);", "argument 3 .* a subgroup_matrix_result"),
        (
            "sum = subgroupMatrixMultiplyAccumulate(left, right, subgroup_matrix_result<f32, 16, 4>());",
            "the sum must be subgroup_matrix_result<f32, 4, 16>, but this is subgroup_matrix_result<f32, 16, 4>",
        ),
        ("_ = subgroupMatrixMultiply<f32>(Left(), subgroup_matrix_right<f32, 4, 4>());", "there is no product of"),
        ("_ = subgroupMatrixMultiply<f32>(Left(), subgroup_matrix_right<f16, 4, 8>());", "there is no product of"),
        ("_ = subgroupMatrixMultiply<u32>(left, right);", "elements of a subgroup matrix are f32 or f16 here, not u32"),
        ("_ = subgroupMatrixMultiply(left, right);", "write subgroupMatrixMultiply<T>"),
        ("_ = subgroupMatrixMultiply<f32>(left);", "takes 2 arguments, not 1"),
        ("_ = subgroupMatrixLoad<Left>(&a, 0u, 8u);", "write subgroupMatrixLoad<MATRIX, row_major>"),
        ("_ = subgroupMatrixLoad<f32, row_major>(&a, 0u, 8u);", "must be a subgroup matrix, not f32"),
        ("_ = subgroupMatrixLoad<Left, rows>(&a, 0u, 8u);", "layout must be row_major or col_major, not rows"),
        ("_ = subgroupMatrixLoad<Left, row_major>(&halves, 0u, 8u);", "needs &array of f32 in storage or workgroup"),
        ("_ = subgroupMatrixLoad<Left, row_major>(&vectors, 0u, 8u);", "needs &array of f32"),
        ("_ = subgroupMatrixLoad<Left, row_major>(a[0], 0u, 8u);", "needs &array of f32"),
        ("_ = subgroupMatrixLoad<Left, row_major>(&a, 0u, 8i);", "argument 3 .* must be u32, but this is i32"),
        ("subgroupMatrixStore<row_major>(&a, 0u, sum, 4u);", "in storage or workgroup memory that can be written"),
        ("subgroupMatrixStore(&c, 0u, sum, 4u);", "write subgroupMatrixStore<row_major>"),
        ("subgroupMatrixStore<row_major>(&c, 0u, 1.0, 4u);", "must be a subgroup matrix, but this is abstract-float"),
        ("_ = sum[0];", "has no elements to index"),
        ("_ = sum + sum;", "'\\+' does not apply to subgroup_matrix_result"),
        ("_ = Left(1u);", "each element must be f32, but this is u32"),
        ("const x = Left();", "must be a const-expression"),
        ("var x: subgroup_matrix_left<u32, 8, 8>;", "are f32 or f16 here, not u32"),
        ("var x: subgroup_matrix_left<f32, 8>;", "needs its elements, columns and rows"),
        ("var x: subgroup_matrix_left<f32, 8, 0>;", "cannot have 0 rows and 8 columns"),
        ("let subgroupMatrixStore = 1; subgroupMatrixStore<row_major>(&c, 0u, sum, 4u);", "is a variable here"),
    ],
)
def test_what_is_wrong_is_refused_in_its_place(body, message):
    with pytest.raises(ShaderError, match=message) as caught:
        linked(body)
    assert (caught.value.file, caught.value.line) == ("t.wgsl", 17)


@pytest.mark.parametrize(
    "variable",
    [
        "var<private> m: subgroup_matrix_left<f32, 8, 8>;",
        "var<workgroup> m: array<subgroup_matrix_left<f32, 8, 8>, 2>;",
        "struct S { m: subgroup_matrix_left<f32, 8, 8> } var<private> m: S;",
        "@group(0) @binding(0) var<storage> m: array<subgroup_matrix_left<f32, 8, 8>>;",
    ],
)
def test_a_variable_of_the_module_holds_no_matrix(variable):
    with pytest.raises(ShaderError, match="is for variables of functions"):
        link(parse(f"{variable} fn f() {{ _ = 1; }}", "t.wgsl"), roots=["m", "f"])


def test_for_other_targets_it_is_refused_where_it_stands():
    module = linked("sum = subgroupMatrixMultiplyAccumulate(left, right, sum);")
    with pytest.raises(ShaderError, match=r"t\.wgsl:8:14: wgpu and Firefox have no subgroup matrices"):
        print_wgsl(module, "naga")
    for dialect in ("opencl", "opencl-subgroups", "cuda"):
        with pytest.raises(ShaderError, match=r"t\.wgsl:8:14: OpenCL C and CUDA C\+\+ .* have no subgroup matrices"):
            print_c(module, dialect)


@pytest.mark.parametrize(
    "body", ["var m = subgroup_matrix_result<f32, 8, 8>();", "var m: array<subgroup_matrix_left<f32, 8, 8>, 2>;"]
)
def test_map_functions_have_none(body):
    with pytest.raises(ShaderError, match="map functions compute with scalars"):
        lint(link(parse(f"fn f(x: f32) -> f32 {{ {body} return x; }}", "t.wgsl")))


def test_the_extension_is_not_enabled_by_hand():
    with pytest.raises(ShaderError, match="leave `enable chromium_experimental_subgroup_matrix;` out"):
        lint(link(parse("enable chromium_experimental_subgroup_matrix; fn f() -> f32 { return 1.0; }", "t.wgsl")))


def test_a_store_of_a_matrix_is_a_store_for_what_is_read_of_workgroup_memory_later():
    text = """
    var<workgroup> tile: array<f32, 64>;
    @group(0) @binding(0) var<storage, read_write> c: array<f32>;
    @compute @workgroup_size(128)
    fn main(@builtin(local_invocation_index) lane: u32) {
        BEFORE
        workgroupBarrier();
        c[lane] = tile[lane % 64u];
    }
    """
    store = "subgroupMatrixStore<row_major>(&tile, 0u, subgroup_matrix_result<f32, 8, 8>(), 8u);"
    lint(link(parse(text.replace("BEFORE", store), "t.wgsl")))
    load = "_ = subgroupMatrixLoad<subgroup_matrix_result<f32, 8, 8>, row_major>(&tile, 0u, 8u);"
    with pytest.raises(ShaderError, match="'tile' is read before it is stored"):
        lint(link(parse(text.replace("BEFORE", load), "t.wgsl")))
