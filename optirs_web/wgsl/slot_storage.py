"""How the slots of an optimizer's state are stored, and what the shells load and store for each kind.

float32     four numbers in a vec4<f32>
bfloat16    four in a vec2<u32>; rounded up or down at random, since an average that moves by less than half a
            spacing would not move at all otherwise
float16     four in a vec2<u32>
dynamic8    four in a u32, as codes of the 8-bit map of ``shaders/lib/storage.wgsl``, and the largest magnitude of
            each block in a table of its own
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = [
    "BITS",
    "EXACT",
    "NOT_NEGATIVE",
    "bindings",
    "functions",
    "halves_of",
    "is_blockwise",
    "is_largest",
    "kind_of",
    "largest_name",
    "load",
    "packed",
    "slot_of",
    "store",
]

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "dynamic8": 8, "dynamic8_unsigned": 8}
"""Bits per element; a block in 8 bits has 32 more."""

# How names of the library's slots end that hold squares, sums of them, or magnitudes.
NOT_NEGATIVE = ("_sq", "_var", "square_avg", "acc_delta", "sum", "exp_inf", "alphak", "accumulator")

# Those that hold positions, or sums that positions are made of: rounding would move the parameters.
EXACT = ("s", "sk", "p0", "x0", "z", "ax", "linear")

_LARGEST = "_largest"


def kind_of(slot: str, asked: str, *, is_own_rule: bool) -> str:
    """How a slot is stored: of "8bit" the map without signs where a rule of the library's never has any."""
    if asked != "8bit":
        return asked
    return "dynamic8" if is_own_rule or not slot.endswith(NOT_NEGATIVE) else "dynamic8_unsigned"


def largest_name(slot: str) -> str:
    """What the table of a slot's largest magnitudes is called."""
    return slot + _LARGEST


def is_largest(name: str) -> bool:
    """Whether it is the name of such a table."""
    return name.endswith(_LARGEST)


def slot_of(name: str) -> str:
    """The slot that such a table belongs to; of a slot its own name."""
    return name.removesuffix(_LARGEST)


_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "float32": (),
    "bfloat16": ("from_bfloat16", "to_bfloat16_stochastic", "rounding_bits"),
    "float16": ("from_float16", "to_float16"),
    "dynamic8": ("from_dynamic8", "to_dynamic8"),
    "dynamic8_unsigned": ("from_dynamic8_unsigned", "to_dynamic8_unsigned"),
}
"""What each kind needs of ``shaders/lib/storage.wgsl``."""

_TYPES = {"float32": "array<vec4<f32>>", "bfloat16": "array<vec2<u32>>", "float16": "array<vec2<u32>>"}
_LANES = "xyzw"


def functions(kinds: Iterable[str]) -> tuple[str, ...]:
    """The functions of ``shaders/lib/storage.wgsl`` that these kinds need."""
    return tuple(dict.fromkeys(name for kind in kinds for name in _FUNCTIONS[kind]))


def is_blockwise(kinds: Iterable[str]) -> bool:
    """Whether a whole block has to be known before any of it can be stored."""
    return any(kind.startswith("dynamic8") for kind in kinds)


def bindings(name: str, kind: str, access: str) -> list[tuple[str, str, str]]:
    """Name, access and type of what a slot of that kind is bound to."""
    if not is_blockwise([kind]):
        return [(name, access, _TYPES[kind])]
    return [(name, access, "array<u32>"), (largest_name(name), access, "array<f32>")]


def halves_of(name: str) -> list[str]:
    """The four halves of words of the vec2<u32> at `at`."""
    return [f"{name}[at].{word} {shift}" for word in "xy" for shift in ("& 0xffffu", ">> 16u")]


def packed(halves: Sequence[str]) -> str:
    """The vec2<u32> of four halves of words."""
    return f"vec2<u32>({halves[0]} | ({halves[1]} << 16u), {halves[2]} | ({halves[3]} << 16u))"


def load(name: str, kind: str) -> list[str]:
    """Statements after which ``old_NAME`` is the vector at `at`, of the block `number`."""
    if kind == "float32":
        return [f"let old_{name} = {name}[at];"]
    if is_blockwise([kind]):
        suffix = kind.removeprefix("dynamic8")
        parts = (
            f"from_dynamic8{suffix}(({name}[at] >> {shift}u) & 0xffu, {largest_name(name)}[number])"
            for shift in (0, 8, 16, 24)
        )
    else:
        parts = (f"from_{kind}({half})" for half in halves_of(name))
    return [f"let old_{name} = vec4<f32>({', '.join(parts)});"]


def scalar_type(kind: str) -> str:
    """What a slot is bound as where elements are loaded and stored one by one, by any invocation."""
    return "array<f32>" if kind == "float32" else "array<atomic<u32>>"


def load_one(name: str, kind: str) -> list[str]:
    """Statements after which ``old_NAME`` is the element at `at`; of a slot that is not blockwise."""
    if kind == "float32":
        return [f"let old_{name} = {name}[at];"]
    return [
        f"let bits_{name} = (atomicLoad(&{name}[at / 2u]) >> (at % 2u * 16u)) & 0xffffu;",
        f"let old_{name} = from_{kind}(bits_{name});",
    ]


def store_one(name: str, kind: str, value: str, seed: str) -> str:
    """The statement that stores it; another invocation may change the other half of its word meanwhile."""
    if kind == "float32":
        return f"{name}[at] = {value};"
    return f"atomicXor(&{name}[at / 2u], (bits_{name} ^ {_half(kind, value, 'at', seed)}) << (at % 2u * 16u));"


def _half(kind: str, value: str, place: str, seed: str) -> str:
    """The 16 bits of a value."""
    if kind == "bfloat16":
        return f"to_bfloat16_stochastic({value}, rounding_bits({place}, {seed}))"
    return f"to_{kind}({value})"


def store(name: str, kind: str, value: str, seed: str) -> list[str]:
    """Statements that store a vector at `at`; what is blockwise finds its largest magnitude in ``NAME_most``.

    Args:
        name: of the slot.
        kind: of its storage.
        value: an expression, a vec4<f32>.
        seed: an expression of a u32 that differs from slot to slot, for rounding at random.
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
    halves = [_half(kind, f"{new}.{lane}", f"at * 4u + {number}u", seed) for number, lane in enumerate(_LANES)]
    return [*lines, f"{name}[at] = {packed(halves)};"]
