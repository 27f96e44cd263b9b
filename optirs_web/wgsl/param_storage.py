"""How parameters in bfloat16 are kept, and what the shells load and store of them.

A tensor then holds numbers of bfloat16. What is updated is a float32, `whole`, which is made of the number and of what
lies beside it:

master      the lower half of the float32, four in a vec2<u32>
kahan       what rounding has cut off (Kahan 1965), four as bfloat16 in a vec2<u32>
stochastic  nothing: the number is rounded up or down at random, right on average
"""

from __future__ import annotations

from typing import NamedTuple

from .slot_storage import halves_of, packed

__all__ = ["NAMES", "PARAM", "ROUNDINGS", "SLOTS", "bindings", "functions", "load", "store", "whole"]

PARAM = "param"
"""What stands for the parameter among the slots that are not stored as float32."""

NAMES = ("master", "kahan_comp")
"""What state dicts have of it: the whole, or what was cut off."""


class _Kind(NamedTuple):
    """How a kind is loaded and stored, as expressions of an element: of its new whole `x`, and of `r`, `x` rounded.

    Attributes:
        functions: those of ``shaders/lib/storage.wgsl`` that it takes.
        rounded: the number of bfloat16.
        slot: what lies beside the parameter, of 16 bits; "" for nothing.
        join: the function that makes the whole of both.
        beside: what is stored there.
        at_random: in place of `rounded`, where there is a seed.
    """

    functions: tuple[str, ...]
    rounded: str
    slot: str = ""
    join: str = ""
    beside: str = ""
    at_random: str = ""


_NEAREST = "from_bfloat16(to_bfloat16({x}))"
_KINDS = {
    "master": _Kind(
        ("join_halves", "lower_half", "upper_half"),
        "upper_half({x})",
        slot="master_low",
        join="join_halves",
        beside="lower_half({x})",
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
        beside="to_bfloat16({x} - {r})",
    ),
}
_LANES = "xyzw"

ROUNDINGS = tuple(_KINDS)

SLOTS = {name: kind.slot for name, kind in _KINDS.items() if kind.slot}
"""What lies beside the parameter, of 16 bits."""


def functions(kind: str) -> tuple[str, ...]:
    """The functions of ``shaders/lib/storage.wgsl`` that it takes; none for float32, which is ""."""
    return _KINDS[kind].functions if kind else ()


def bindings(kind: str, access: str) -> list[tuple[str, str, str]]:
    """Name, access and type of what is bound besides the parameters."""
    return [(SLOTS[kind], access, "array<vec2<u32>>")] if kind in SLOTS else []


def whole(kind: str) -> str:
    """What the vector is called that is updated."""
    return "whole" if kind in SLOTS else PARAM


def load(kind: str) -> list[str]:
    """Statements after which it has that name; `param` is loaded."""
    if kind not in SLOTS:
        return []
    pairs = zip(_LANES, halves_of(SLOTS[kind]), strict=True)
    return [
        f"let whole = vec4<f32>({', '.join(f'{_KINDS[kind].join}(param.{lane}, {half})' for lane, half in pairs)});"
    ]


def store(kind: str, value: str, seed: str = "") -> list[str]:
    """Statements that store a vector of wholes at `at`.

    Args:
        kind: how.
        value: an expression, a vec4<f32>.
        seed: an expression of a u32, for rounding at random; without it to the nearest.
    """
    if not kind:
        return [f"params[at] = {value};"]
    its = _KINDS[kind]

    def of_lanes(text: str) -> list[str]:
        return [
            text.format(x=f"new_param.{lane}", r=f"rounded.{lane}", number=number, seed=seed)
            for number, lane in enumerate(_LANES)
        ]

    rounded = ", ".join(of_lanes((seed and its.at_random) or its.rounded))
    lines = [f"let new_param = {value};", f"let rounded = vec4<f32>({rounded});", "params[at] = rounded;"]
    return [*lines, f"{its.slot}[at] = {packed(of_lanes(its.beside))};"] if its.slot else lines
