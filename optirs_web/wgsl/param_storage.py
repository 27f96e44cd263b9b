"""The storage of parameters in bfloat16, and the generated code that loads and stores them.

The tensor has bfloat16 elements. The update computes a float32, `whole`, from the element and a second value:

master      the lower 16 bits of the float32, four in a vec2<u32>
kahan       the rounding error (Kahan 1965), four as bfloat16 in a vec2<u32>
stochastic  none: the element is rounded up or down at random, without bias
"""

from __future__ import annotations

from typing import NamedTuple

from .slot_storage import packed, unpacked

__all__ = ["NAMES", "PARAM", "ROUNDINGS", "SLOTS", "bindings", "functions", "load", "store", "whole"]

PARAM = "param"
"""The name of the parameter among the slots that are not stored as float32."""

NAMES = ("master", "kahan_comp")
"""The names in state dicts: of the float32, or of the rounding error."""


class _Kind(NamedTuple):
    """How a kind is loaded and stored, as expressions of the new float32 `x` of an element, and of `r`, `x` rounded.

    Attributes:
        functions: the functions of ``shaders/lib/storage.wgsl`` that it needs.
        rounded: the bfloat16 element.
        slot: the buffer of the second value, of 16 bits; "" for none.
        join: the function that computes the float32 from both.
        second: the second value that is stored.
        at_random: used instead of `rounded` if there is a seed.
    """

    functions: tuple[str, ...]
    rounded: str
    slot: str = ""
    join: str = ""
    second: str = ""
    at_random: str = ""


_NEAREST = "from_bfloat16(to_bfloat16({x}))"
_KINDS = {
    "master": _Kind(
        ("join_halves", "lower_half", "upper_half"),
        "upper_half({x})",
        slot="master_low",
        join="join_halves",
        second="lower_half({x})",
    ),
    "stochastic": _Kind(
        ("from_bfloat16", "rounding_bits", "to_bfloat16", "to_bfloat16_stochastic"),
        _NEAREST,
        at_random="from_bfloat16(to_bfloat16_stochastic({x}, rounding_bits(at * 4u + {number}u, {seed})))",
    ),
    "kahan": _Kind(
        ("add_cut_off", "from_bfloat16", "to_bfloat16"),
        _NEAREST,
        slot="kahan_comp",
        join="add_cut_off",
        second="to_bfloat16({x} - {r})",
    ),
}
_LANES = "xyzw"

ROUNDINGS = tuple(_KINDS)

SLOTS = {name: kind.slot for name, kind in _KINDS.items() if kind.slot}
"""By kind the buffer of the second value of each element, of 16 bits."""


def functions(kind: str) -> tuple[str, ...]:
    """Return the functions of ``shaders/lib/storage.wgsl`` that a kind needs; none for "", which is float32."""
    return _KINDS[kind].functions if kind else ()


def bindings(kind: str, access: str) -> list[tuple[str, str, str]]:
    """Return name, access and type of the bindings besides the parameters."""
    return [(SLOTS[kind], access, "array<vec2<u32>>")] if kind in SLOTS else []


def whole(kind: str) -> str:
    """Return the name of the vector that is updated in the generated code."""
    return "whole" if kind in SLOTS else PARAM


def load(kind: str) -> list[str]:
    """Return statements that declare the vector of that name; `param` is loaded already."""
    if kind not in SLOTS:
        return []
    pairs = zip(_LANES, unpacked(SLOTS[kind]), strict=True)
    return [
        f"let whole = vec4<f32>({', '.join(f'{_KINDS[kind].join}(param.{lane}, {bits})' for lane, bits in pairs)});"
    ]


def store(kind: str, value: str, seed: str = "") -> list[str]:
    """Return statements that store four float32 at `at`.

    Args:
        kind: the kind of storage.
        value: an expression, a vec4<f32>.
        seed: an expression of type u32, for rounding at random; without it values are rounded to the nearest.
    """
    if not kind:
        return [f"params[at] = {value};"]
    storage = _KINDS[kind]

    def of_lanes(text: str) -> list[str]:
        return [
            text.format(x=f"new_param.{lane}", r=f"rounded.{lane}", number=number, seed=seed)
            for number, lane in enumerate(_LANES)
        ]

    rounded = ", ".join(of_lanes((seed and storage.at_random) or storage.rounded))
    lines = [f"let new_param = {value};", f"let rounded = vec4<f32>({rounded});", "params[at] = rounded;"]
    return [*lines, f"{storage.slot}[at] = {packed(of_lanes(storage.second))};"] if storage.slot else lines
