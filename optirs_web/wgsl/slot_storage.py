"""The storage of the slots of an optimizer's state, and the generated code that loads and stores them.

float32     four numbers in a vec4<f32>
bfloat16    four in a vec2<u32>; rounded up or down at random, since an average that changes by less than half a
            spacing would not change at all otherwise
float16     four in a vec2<u32>
dynamic8    four in a u32, as codes of the 8-bit map of ``shaders/lib/storage.wgsl``, and the largest magnitude of
            each block in a separate table
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = [
    "BITS",
    "EXACT",
    "NOT_NEGATIVE",
    "bindings",
    "functions",
    "is_blockwise",
    "is_largest",
    "kind_of",
    "largest_name",
    "load",
    "packed",
    "slot_of",
    "store",
    "unpacked",
]

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "dynamic8": 8, "dynamic8_unsigned": 8}
"""Bits per element; with 8 bits, a block has 32 more."""

# Suffixes of the names of the library's slots with squares, sums of squares, or magnitudes.
NOT_NEGATIVE = ("_sq", "_var", "square_avg", "acc_delta", "sum", "exp_inf", "alphak", "accumulator")

# Slots with positions, or with sums from which positions are computed: rounding would change the parameters.
EXACT = ("s", "sk", "p0", "x0", "z", "ax", "linear")

_LARGEST = "_largest"


def kind_of(slot: str, requested: str, *, is_own_rule: bool) -> str:
    """Return the kind of storage of a slot; "8bit" has no signs if the slot of a library's rule is never negative."""
    if requested != "8bit":
        return requested
    return "dynamic8" if is_own_rule or not slot.endswith(NOT_NEGATIVE) else "dynamic8_unsigned"


def largest_name(slot: str) -> str:
    """Return the name of the table of a slot's largest magnitudes."""
    return slot + _LARGEST


def is_largest(name: str) -> bool:
    """Return True for the name of a table of largest magnitudes."""
    return name.endswith(_LARGEST)


def slot_of(name: str) -> str:
    """Return the slot to which a table of largest magnitudes belongs; for a slot, its own name."""
    return name.removesuffix(_LARGEST)


_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "float32": (),
    "bfloat16": ("from_bfloat16", "to_bfloat16_stochastic", "rounding_bits"),
    "float16": ("from_float16", "to_float16"),
    "dynamic8": ("from_dynamic8", "to_dynamic8"),
    "dynamic8_unsigned": ("from_dynamic8_unsigned", "to_dynamic8_unsigned"),
}
"""By kind the functions of ``shaders/lib/storage.wgsl`` that it needs."""

_TYPES = {"float32": "array<vec4<f32>>", "bfloat16": "array<vec2<u32>>", "float16": "array<vec2<u32>>"}
_LANES = "xyzw"


def functions(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the functions of ``shaders/lib/storage.wgsl`` that these kinds need."""
    return tuple(dict.fromkeys(name for kind in kinds for name in _FUNCTIONS[kind]))


def is_blockwise(kinds: Iterable[str]) -> bool:
    """Return True if a kind needs all values of a block before it can store any of them."""
    return any(kind.startswith("dynamic8") for kind in kinds)


def bindings(name: str, kind: str, access: str) -> list[tuple[str, str, str]]:
    """Return name, access and type of the bindings of a slot of that kind."""
    if not is_blockwise([kind]):
        return [(name, access, _TYPES[kind])]
    return [(name, access, "array<u32>"), (largest_name(name), access, "array<f32>")]


def unpacked(name: str) -> list[str]:
    """Return expressions of the four 16-bit values in the vec2<u32> at `at`."""
    return [f"{name}[at].{word} {shift}" for word in "xy" for shift in ("& 0xffffu", ">> 16u")]


def packed(words: Sequence[str]) -> str:
    """Return the vec2<u32> of four 16-bit values."""
    return f"vec2<u32>({words[0]} | ({words[1]} << 16u), {words[2]} | ({words[3]} << 16u))"


def load(name: str, kind: str) -> list[str]:
    """Return statements that declare ``old_NAME``, the vector at `at` in block `number`."""
    if kind == "float32":
        return [f"let old_{name} = {name}[at];"]
    if is_blockwise([kind]):
        suffix = kind.removeprefix("dynamic8")
        elements = (
            f"from_dynamic8{suffix}(({name}[at] >> {shift}u) & 0xffu, {largest_name(name)}[number])"
            for shift in (0, 8, 16, 24)
        )
    else:
        elements = (f"from_{kind}({bits})" for bits in unpacked(name))
    return [f"let old_{name} = vec4<f32>({', '.join(elements)});"]


def scalar_type(kind: str) -> str:
    """Return the type of a slot's binding in kernels that load and store single elements, in any order."""
    return "array<f32>" if kind == "float32" else "array<atomic<u32>>"


def load_one(name: str, kind: str) -> list[str]:
    """Return statements that declare ``old_NAME``, the element at `at` of a slot that is not blockwise."""
    if kind == "float32":
        return [f"let old_{name} = {name}[at];"]
    return [
        f"let bits_{name} = (atomicLoad(&{name}[at / 2u]) >> (at % 2u * 16u)) & 0xffffu;",
        f"let old_{name} = from_{kind}(bits_{name});",
    ]


def store_one(name: str, kind: str, value: str, seed: str) -> str:
    """Return the statement that stores an element; another invocation may change the other 16 bits of its word."""
    if kind == "float32":
        return f"{name}[at] = {value};"
    return f"atomicXor(&{name}[at / 2u], (bits_{name} ^ {_encoded(kind, value, 'at', seed)}) << (at % 2u * 16u));"


def _encoded(kind: str, value: str, index: str, seed: str) -> str:
    """Return the 16 bits of a value."""
    if kind == "bfloat16":
        return f"to_bfloat16_stochastic({value}, rounding_bits({index}, {seed}))"
    return f"to_{kind}({value})"


def store(name: str, kind: str, value: str, seed: str) -> list[str]:
    """Return statements that store a vector at `at`; the largest magnitude of a blockwise slot is in ``NAME_most``.

    Args:
        name: the slot.
        kind: the kind of its storage.
        value: an expression, a vec4<f32>.
        seed: an expression of type u32, different for each slot, for rounding at random.
    """
    if kind == "float32":
        return [f"{name}[at] = {value};"]
    new = f"new_{name}"
    lines = [] if value == new else [f"let {new} = {value};"]
    if is_blockwise([kind]):
        suffix = kind.removeprefix("dynamic8")
        codes = " | ".join(
            f"(to_dynamic8{suffix}({new}.{lane}, {name}_most) << {shift}u)"
            for lane, shift in zip(_LANES, (0, 8, 16, 24), strict=True)
        )
        return [*lines, f"{name}[at] = {codes};"]
    words = [_encoded(kind, f"{new}.{lane}", f"at * 4u + {number}u", seed) for number, lane in enumerate(_LANES)]
    return [*lines, f"{name}[at] = {packed(words)};"]
