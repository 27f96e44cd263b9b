"""The operators and built-ins of WGSL in OpenCL C and in CUDA C++, as tables that `print_c` reads.

A row is a template and the precedence level of its result. ``{0:9}`` is the first operand, in parentheses unless its
own level is at least 9; a plain ``{0}`` never needs them. The key is the operator or built-in, then the type of its
first operand, or only the former if it is the same for all types. Rows are for scalars: `c_operations` applies them to
vectors component by component, and f16 is computed as f32 and rounded, which gives the same bits. "/ u32 literal" and
the like are for a right operand that is a literal.

In helpers and rows ``@`` is replaced by the suffix of CUDA's functions of f32: ``exp@`` is `exp` and `expf`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from .c_helpers import CUDA_HELPERS, CUDA_SUBGROUPS, HELPERS, OPENCL_HELPERS

__all__ = ["ATOM", "C_DIALECTS", "TERNARY", "UNARY", "CDialect", "Row"]

TERNARY, OR_ELSE, AND_ALSO, OR, XOR, AND, EQUALITY, RELATION, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(13)
"""The precedence levels of C, the lowest first."""

Row = tuple[str, int]


@dataclass(frozen=True)
class CDialect:
    """One of the C family of targets.

    Attributes:
        header: the beginning of every text, after its first line.
        half: the definition of the type f16.
        kernel: the text before the kernel's name, with `x`, `y`, `z` and `invocations` of a workgroup.
        function: the qualifiers of a function.
        sharing: those of a function with a parameter in workgroup memory.
        constant: the qualifiers of a scalar constant.
        table: those of a constant array or struct.
        spaces: by address space of WGSL the qualifier of a type.
        shared: the qualifier that declares workgroup memory in the kernel.
        aligned: the attribute of a type or member of that alignment.
        restrict: the qualifier of a pointer to memory that no other pointer of the kernel writes.
        value: a struct, array or vector of `values`.
        zero: the text between the braces of a zero value.
        vectors: the dialect's own vector types, by their names in the text; the others are unions.
        half_literal: a number of f16, from `value` and `bits`.
        builtin_values: each `@builtin`, for axis `d`; `size` is the workgroup's size along it, `index` the local
            invocation index, `invocations` their number in a workgroup.
        axes: `d` for each of the three axes.
        subgroup: invocations of a subgroup.
        rows: the table.
        helpers: functions that rows use; a text contains those it needs.
        atomics: the functions on a pointer and a value.
        early: helpers that types use.
    """

    name: str
    header: str
    half: str
    kernel: str
    function: str
    sharing: str
    constant: str
    table: str
    spaces: Mapping[str, str]
    shared: str
    aligned: str
    restrict: str
    value: str
    zero: str
    half_literal: str
    builtin_values: Mapping[str, str]
    axes: tuple[str, str, str]
    subgroup: int
    rows: Mapping[str, Row]
    helpers: Mapping[str, str]
    atomics: Mapping[str, str]
    early: frozenset[str] = field(default_factory=frozenset)
    vectors: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the names of the functions that rows call, which no variable may hide."""
        texts = [template for template, _ in self.rows.values()]
        texts += [*self.builtin_values.values(), *self.atomics.values()]
        return frozenset(word for text in texts for word in re.findall(r"[A-Za-z]\w*(?=\()", text)) | set(
            self.atomics.values()
        )


def _infix(symbol: str, level: int) -> Row:
    return f"{{0:{level}}} {symbol} {{1:{level + 1}}}", level


def _call(template: str) -> Row:
    return template, ATOM


_INFIX = {
    **{f"{symbol} f32": _infix(symbol, SUM) for symbol in "+-"},
    **{f"{symbol} u32": _infix(symbol, SUM) for symbol in "+-"},
    **{f"{symbol} {type_}": _infix(symbol, level) for symbol, level in (("*", PRODUCT),) for type_ in ("f32", "u32")},
    "/ f32": _infix("/", PRODUCT),
    **{f"{symbol} {type_} literal": _infix(symbol, PRODUCT) for symbol in "/%" for type_ in ("i32", "u32")},
    **{symbol: _infix(symbol, EQUALITY) for symbol in ("==", "!=")},
    **{symbol: _infix(symbol, RELATION) for symbol in ("<", "<=", ">", ">=")},
    "&&": _infix("&&", AND_ALSO),
    "||": _infix("||", OR_ELSE),
    "&": _infix("&", AND),
    "|": _infix("|", OR),
    "^": _infix("^", XOR),
    # Clang warns of a sum that is shifted without parentheses, and PoCL says so on the terminal.
    "<< u32 literal": (f"{{0:{PRODUCT}}} << {{1:{SUM}}}", SHIFT),
    ">> u32 literal": (f"{{0:{PRODUCT}}} >> {{1:{SUM}}}", SHIFT),
    ">> i32 literal": (f"{{0:{PRODUCT}}} >> {{1:{SUM}}}", SHIFT),
}
"""Rows that are the same in C and WGSL."""

_SAME_NAME = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp", "exp2", "floor", "log", "log2",
    "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip

_ROWS: dict[str, Row] = {
    **_INFIX,
    "negate f32": (f"-{{0:{ATOM}}}", UNARY),
    "negate i32": _call("_subtract_i32(0, {0})"),
    "!": (f"!{{0:{ATOM}}}", UNARY),
    "~": (f"~{{0:{ATOM}}}", UNARY),
    "& bool": (f"(bool)({{0:{AND}}} & {{1:{AND + 1}}})", UNARY),
    "| bool": (f"(bool)({{0:{OR}}} | {{1:{OR + 1}}})", UNARY),
    # Integers wrap, and every division has a result.
    "+ i32": _call("_add_i32({0}, {1})"),
    "- i32": _call("_subtract_i32({0}, {1})"),
    "* i32": _call("_multiply_i32({0}, {1})"),
    "/ i32": _call("_divide_i32({0}, {1})"),
    "/ u32": _call("_divide_u32({0}, {1})"),
    "% i32": _call("_remainder_i32({0}, {1})"),
    "% u32": _call("_remainder_u32({0}, {1})"),
    "% f32": _call("fmod@({0}, {1})"),
    "<< u32": (f"{{0:{PRODUCT}}} << ({{1:{AND}}} & 31u)", SHIFT),
    ">> u32": (f"{{0:{PRODUCT}}} >> ({{1:{AND}}} & 31u)", SHIFT),
    ">> i32": (f"{{0:{PRODUCT}}} >> ({{1:{AND}}} & 31u)", SHIFT),
    "<< i32": (f"(i32)((u32){{0:{UNARY}}} << ({{1:{AND}}} & 31u))", UNARY),
    # Choices. `min` and `max` of a number and a NaN are the number.
    "select": (f"{{2:{OR_ELSE}}} ? {{1:{OR_ELSE}}} : {{0:{OR_ELSE}}}", TERNARY),
    "min f32": _call("fmin@({0}, {1})"),
    "max f32": _call("fmax@({0}, {1})"),
    "clamp f32": _call("fmin@(fmax@({0}, {1}), {2})"),
    "min": _call("min({0}, {1})"),
    "max": _call("max({0}, {1})"),
    "clamp": _call("min(max({0}, {1}), {2})"),
    "saturate": _call("fmin@(fmax@({0}, 0.0f), 1.0f)"),
    "step": (f"(f32)({{1:{RELATION}}} >= {{0:{RELATION + 1}}})", UNARY),
    "any": ("{0}", TERNARY),
    "all": ("{0}", TERNARY),
    # Arithmetic.
    **{name: _call(f"{name}@({{0}})") for name in _SAME_NAME},
    "round": _call("rint@({0})"),
    "abs f32": _call("fabs@({0})"),
    "abs i32": _call("_abs_i32({0})"),
    "abs u32": ("{0}", TERNARY),
    "length": _call("fabs@({0})"),
    "distance": (f"fabs@({{0:{SUM}}} - {{1:{SUM + 1}}})", ATOM),
    "sign f32": _call("_sign_f32({0})"),
    "sign i32": _call("_sign_i32({0})"),
    "atan2": _call("atan2@({0}, {1})"),
    "pow": _call("pow@({0}, {1})"),
    "fma": _call("fma@({0}, {1}, {2})"),
    "ldexp": _call("ldexp@({0}, {1})"),
    "inverseSqrt": ("1.0f / sqrt@({0})", PRODUCT),
    "fract": _call("_fract({0})"),
    "mix": _call("_mix({0}, {1}, {2})"),
    "smoothstep": _call("_smoothstep({0}, {1}, {2})"),
    "degrees": (f"{{0:{PRODUCT}}} * 57.2957795f", PRODUCT),
    "radians": (f"{{0:{PRODUCT}}} * 0.0174532925f", PRODUCT),
    "quantizeToF16": _call("_half_value(_half_bits({0}))"),
    # Bits.
    "countTrailingZeros u32": _call("_trailing_zeros({0})"),
    "firstTrailingBit u32": _call("_first_trailing_bit({0})"),
    "firstLeadingBit i32": _call("_first_leading_bit_i32({0})"),
    "reverseBits u32": _call("_reverse_bits({0})"),
    "extractBits u32": _call("_extract_bits_u32({0}, {1}, {2})"),
    "extractBits i32": _call("_extract_bits_i32({0}, {1}, {2})"),
    "insertBits u32": _call("_insert_bits({0}, {1}, {2}, {3})"),
    "insertBits i32": (f"(i32)_insert_bits((u32){{0:{UNARY}}}, (u32){{1:{UNARY}}}, {{2}}, {{3}})", UNARY),
    **{
        name: _call(f"_{name}({', '.join(f'{{{n}}}' for n in range(count))})")
        for count, names in (
            (1, "pack4x8snorm pack4x8unorm pack4xI8 pack4xI8Clamp pack4xU8 pack4xU8Clamp pack2x16snorm pack2x16unorm "
                "pack2x16float unpack4x8snorm unpack4x8unorm unpack4xI8 unpack4xU8 unpack2x16snorm unpack2x16unorm "
                "unpack2x16float"),
            (2, "dot4U8Packed dot4I8Packed"),
        )
        for name in names.split()
    },
    # Conversions. Out of range is clamped to the nearest value that both types hold, as in WGSL; NaN is 0.
    "i32 f32": _call("_i32_of_f32({0})"),
    "u32 f32": _call("_u32_of_f32({0})"),
    **{type_: (f"({type_}){{0:{UNARY}}}", UNARY) for type_ in ("f32", "i32", "u32", "bool")},
    "bitcast i32 u32": (f"(i32){{0:{UNARY}}}", UNARY),
    "bitcast u32 i32": (f"(u32){{0:{UNARY}}}", UNARY),
}  # fmt: skip

_OF_U32 = ("countOneBits", "countLeadingZeros", "countTrailingZeros", "firstTrailingBit", "reverseBits")


def _rows(own: Mapping[str, Row], suffix: str) -> dict[str, Row]:
    """Return the table of a dialect: the common rows and its own."""
    rows = {**_ROWS, **own}
    for name in _OF_U32:
        template, _ = rows[f"{name} u32"]
        rows[f"{name} i32"] = f"(i32){template}".replace("{0}", f"(u32){{0:{UNARY}}}"), UNARY
    return {key: (template.replace("@", suffix), level) for key, (template, level) in rows.items()}


def _helpers(own: Mapping[str, str], suffix: str) -> dict[str, str]:
    return {name: text.replace("@", suffix).strip("\n") + "\n" for name, text in {**own, **HELPERS}.items()}


_SUBGROUP_OF_ONE = {
    **dict.fromkeys(
        (
            "subgroupAdd", "subgroupMul", "subgroupInclusiveAdd", "subgroupInclusiveMul", "subgroupMax", "subgroupMin",
            "subgroupAnd", "subgroupOr", "subgroupXor", "subgroupAll", "subgroupAny", "subgroupBroadcast",
            "subgroupBroadcastFirst", "subgroupShuffle", "subgroupShuffleXor", "subgroupShuffleUp",
            "subgroupShuffleDown", "quadBroadcast", "quadSwapX", "quadSwapY", "quadSwapDiagonal",
        ),
        ("{0}", TERNARY),
    ),
    **{f"subgroupExclusiveAdd {type_}": (f"({type_})0", UNARY) for type_ in ("i32", "u32", "f32")},
    **{f"subgroupExclusiveMul {type_}": (f"({type_})1", UNARY) for type_ in ("i32", "u32", "f32")},
    "subgroupBallot": _call("_ballot({0})"),
}  # fmt: skip
"""Rows for OpenCL C 1.2, which has no subgroups: each invocation is a subgroup."""

_KHR_SUBGROUPS = ("subgroups", "subgroup_ballot", "subgroup_non_uniform_arithmetic", "subgroup_shuffle",
                  "subgroup_shuffle_relative")  # fmt: skip
_QUAD = "sub_group_shuffle({{0}}, (get_sub_group_local_id() & ~3u) + {})"
_SUBGROUPS = {
    **{
        f"subgroup{name}": _call(f"sub_group_{word}({{0}})")
        for name, word in {
            "Add": "reduce_add", "Max": "reduce_max", "Min": "reduce_min",
            "InclusiveAdd": "scan_inclusive_add", "ExclusiveAdd": "scan_exclusive_add",
            "Mul": "non_uniform_reduce_mul", "InclusiveMul": "non_uniform_scan_inclusive_mul",
            "ExclusiveMul": "non_uniform_scan_exclusive_mul", "And": "non_uniform_reduce_and",
            "Or": "non_uniform_reduce_or", "Xor": "non_uniform_reduce_xor", "Ballot": "ballot",
        }.items()
    },
    "subgroupAll": ("sub_group_all({0}) != 0", EQUALITY),
    "subgroupAny": ("sub_group_any({0}) != 0", EQUALITY),
    "subgroupBroadcast": _call("sub_group_broadcast({0}, {1})"),
    "subgroupBroadcastFirst": _call("sub_group_broadcast({0}, 0u)"),
    "subgroupShuffle": _call("sub_group_shuffle({0}, {1})"),
    "subgroupShuffleXor": _call("sub_group_shuffle_xor({0}, {1})"),
    "subgroupShuffleUp": _call("sub_group_shuffle_up({0}, {1})"),
    "subgroupShuffleDown": _call("sub_group_shuffle_down({0}, {1})"),
    "quadBroadcast": _call(_QUAD.format("{1}")),
    **{f"quadSwap{direction}": _call(f"sub_group_shuffle_xor({{0}}, {bits}u)") for direction, bits in
       (("X", 1), ("Y", 2), ("Diagonal", 3))},
}  # fmt: skip
"""Subgroup functions of Khronos' extensions to OpenCL C 2.0 and newer."""

OPENCL = CDialect(
    name="OpenCL C 1.2",
    header="#pragma OPENCL FP_CONTRACT OFF\ntypedef float f32;\ntypedef int i32;\ntypedef uint u32;\n",
    half="#pragma OPENCL EXTENSION cl_khr_fp16 : enable\ntypedef half f16;\n",
    kernel="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void",
    function="static",
    # If all calls of a function pass the same memory, LLVM may refer to it directly in the function; and PoCL, which
    # allocates the memory of each workgroup for the kernel's own references, would let concurrent workgroups share it.
    sharing="static inline __attribute__((always_inline))",
    constant="__constant",
    table="__constant",
    spaces={"storage": "__global ", "workgroup": "__local ", "private": ""},
    shared="__local ",
    aligned="__attribute__((aligned({0}))) ",
    restrict="restrict ",
    value="({type}){{{values}}}",
    zero="0",
    half_literal="(f16){value}f",
    builtin_values={
        "global_invocation_id": "(u32)get_global_id({d})",
        "local_invocation_id": "(u32)get_local_id({d})",
        "workgroup_id": "(u32)get_group_id({d})",
        "num_workgroups": "(u32)get_num_groups({d})",
        "subgroup_size": "1u",
        "subgroup_invocation_id": "0u",
        "subgroup_id": "{index}",
        "num_subgroups": "{invocations}u",
    },
    axes=("0", "1", "2"),
    subgroup=1,
    rows=_rows(
        {
            "f16 f32": (f"(f16){{0:{UNARY}}}", UNARY),
            "countOneBits u32": _call("popcount({0})"),
            "countLeadingZeros u32": _call("clz({0})"),
            "firstLeadingBit u32": ("31u - clz({0})", SUM),
            "bitcast f32": _call("as_float({0})"),
            "bitcast i32 f32": _call("as_int({0})"),
            "bitcast u32 f32": _call("as_uint({0})"),
            "workgroupBarrier": _call("barrier(CLK_LOCAL_MEM_FENCE)"),
            "storageBarrier": _call("barrier(CLK_GLOBAL_MEM_FENCE)"),
            "atomicLoad": _call("atomic_or({0}, 0)"),
            "atomicStore": _call("atomic_xchg({0}, {1})"),
            "compare exchange": _call("atomic_cmpxchg({0}, {1}, {2})"),
            **_SUBGROUP_OF_ONE,
        },
        "",
    ),
    helpers=_helpers(OPENCL_HELPERS, ""),
    atomics={
        "atomicAdd": "atomic_add",
        "atomicSub": "atomic_sub",
        "atomicMax": "atomic_max",
        "atomicMin": "atomic_min",
        "atomicAnd": "atomic_and",
        "atomicOr": "atomic_or",
        "atomicXor": "atomic_xor",
        "atomicExchange": "atomic_xchg",
    },
    # Compilers for processors compute with these four at a time, as they hardly do with a union's components. A vec3
    # has another size there, and there are none of bool.
    vectors={f"vec{size}{type_[0]}": f"{type_}{size}" for size in (2, 4) for type_ in ("float", "int", "uint")},
)

_SHUFFLES = {
    **{
        f"subgroup{name}": _call(f"_subgroup_{word}({{0}})")
        for name, word in (
            ("Add", "add"), ("Mul", "multiply"), ("Max", "max"), ("Min", "min"), ("And", "and"), ("Or", "or"),
            ("Xor", "xor"),
        )
    },
    **{
        f"subgroup{kind}{name}": _call(f"_{kind.lower()}_{word}({{0}})")
        for kind in ("Inclusive", "Exclusive")
        for name, word in (("Add", "add"), ("Mul", "multiply"))
    },
    "subgroupBallot": _call("_ballot({0})"),
    "subgroupAll": _call("(bool)__all_sync(~0u, {0})"),
    "subgroupAny": _call("(bool)__any_sync(~0u, {0})"),
    "subgroupBroadcastFirst": _call("__shfl_sync(~0u, {0}, 0)"),
    "subgroupBroadcast": _call("__shfl_sync(~0u, {0}, {1})"),
    "subgroupShuffle": _call("__shfl_sync(~0u, {0}, {1})"),
    "subgroupShuffleXor": _call("__shfl_xor_sync(~0u, {0}, {1})"),
    "subgroupShuffleUp": _call("__shfl_up_sync(~0u, {0}, {1})"),
    "subgroupShuffleDown": _call("__shfl_down_sync(~0u, {0}, {1})"),
    "quadBroadcast": _call("__shfl_sync(~0u, {0}, {1}, 4)"),
    "quadSwapX": _call("__shfl_xor_sync(~0u, {0}, 1)"),
    "quadSwapY": _call("__shfl_xor_sync(~0u, {0}, 2)"),
    "quadSwapDiagonal": _call("__shfl_xor_sync(~0u, {0}, 3)"),
}  # fmt: skip

CUDA = CDialect(
    name="CUDA C++",
    header="typedef float f32;\ntypedef int i32;\ntypedef unsigned int u32;\n",
    half=(
        "struct f16 {\n    unsigned short bits;\n"
        "    __device__ operator f32() const { return _half_value(bits); }\n};\n"
    ),
    kernel='extern "C" __global__ void __launch_bounds__({invocations})',
    function="static __device__",
    sharing="static __device__",
    constant="static constexpr",
    table="static __constant__ const",
    spaces={"storage": "", "workgroup": "", "private": ""},
    shared="__shared__ ",
    aligned="alignas({0}) ",
    restrict="__restrict__ ",
    value="{type}{{{values}}}",
    zero="",
    half_literal="f16{{{bits:#x}}}",
    builtin_values={
        "global_invocation_id": "blockIdx.{d} * {size}u + threadIdx.{d}",
        "local_invocation_id": "threadIdx.{d}",
        "workgroup_id": "blockIdx.{d}",
        "num_workgroups": "gridDim.{d}",
        "subgroup_size": "32u",
        "subgroup_invocation_id": "({index}) & 31u",
        "subgroup_id": "({index}) / 32u",
        "num_subgroups": "{invocations}u / 32u",
    },
    axes=("x", "y", "z"),
    subgroup=32,
    rows=_rows(
        {
            "f16 f32": _call("_f16({0})"),
            "countOneBits u32": _call("(u32)__popc({0})"),
            "countLeadingZeros u32": _call("(u32)__clz((i32)({0}))"),
            "firstLeadingBit u32": ("31u - (u32)__clz((i32)({0}))", SUM),
            "bitcast f32 u32": _call("__uint_as_float({0})"),
            "bitcast f32 i32": _call("__int_as_float({0})"),
            "bitcast i32 f32": _call("__float_as_int({0})"),
            "bitcast u32 f32": _call("__float_as_uint({0})"),
            "workgroupBarrier": _call("__syncthreads()"),
            "storageBarrier": _call("__syncthreads()"),
            "atomicLoad": _call("_atomic_load({0})"),
            "atomicStore": _call("_atomic_store({0}, {1})"),
            "compare exchange": _call("atomicCAS({0}, {1}, {2})"),
            **_SHUFFLES,
        },
        "f",
    ),
    helpers=_helpers({**CUDA_HELPERS, **CUDA_SUBGROUPS}, "f"),
    atomics={
        "atomicAdd": "atomicAdd",
        "atomicSub": "atomicSub",
        "atomicMax": "atomicMax",
        "atomicMin": "atomicMin",
        "atomicAnd": "atomicAnd",
        "atomicOr": "atomicOr",
        "atomicXor": "atomicXor",
        "atomicExchange": "atomicExch",
    },
    early=frozenset(("_half_bits", "_half_value")),
)

OPENCL_SUBGROUPS = replace(
    OPENCL,
    name="OpenCL C with subgroups",
    header=OPENCL.header
    + "".join(
        f"#ifdef cl_khr_{extension}\n#pragma OPENCL EXTENSION cl_khr_{extension} : enable\n#endif\n"
        for extension in _KHR_SUBGROUPS
    ),
    builtin_values={
        **OPENCL.builtin_values,
        "subgroup_size": "get_max_sub_group_size()",
        "subgroup_invocation_id": "get_sub_group_local_id()",
        "subgroup_id": "get_sub_group_id()",
        "num_subgroups": "get_num_sub_groups()",
    },
    rows={**{key: row for key, row in OPENCL.rows.items() if not key.startswith("subgroup")}, **_SUBGROUPS},
)

C_DIALECTS: Mapping[str, CDialect] = {"opencl": OPENCL, "opencl-subgroups": OPENCL_SUBGROUPS, "cuda": CUDA}
