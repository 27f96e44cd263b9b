"""How parameters in bfloat16 are kept, and what the shells load and store of them.

A tensor then holds numbers of bfloat16. What is updated is a float32, `whole`, which is made of the number and of what
lies beside it:

master      the lower half of the float32, four in a vec2<u32>
kahan       what rounding has cut off (Kahan 1965), four as bfloat16 in a vec2<u32>
stochastic  nothing: the number is rounded up or down at random, right on average
"""

from __future__ import annotations

from .slot_storage import halves_of, packed

__all__ = ["NAMES", "PARAM", "ROUNDINGS", "SLOTS", "bindings", "functions", "load", "store", "whole"]

PARAM = "param"
"""What stands for the parameter among the slots that are not stored as float32."""

ROUNDINGS = ("master", "stochastic", "kahan")

SLOTS = {"master": "master_low", "kahan": "kahan_comp"}
"""What lies beside the parameter, of 16 bits."""

NAMES = ("master", "kahan_comp")
"""What state dicts have of it: the whole, or what was cut off."""

_FUNCTIONS = {
    "master": ("join_halves", "lower_half", "upper_half"),
    "kahan": ("add_cut_off", "from_bfloat16", "to_bfloat16"),
    "stochastic": ("from_bfloat16", "rounding_bits", "to_bfloat16", "to_bfloat16_stochastic"),
}
_LANES = "xyzw"


def functions(kind: str) -> tuple[str, ...]:
    """The functions of ``shaders/lib/storage.wgsl`` that it takes; none for float32, which is ""."""
    return _FUNCTIONS.get(kind, ())


def bindings(kind: str, access: str) -> list[tuple[str, str, str]]:
    """Name, access and type of what is bound besides the parameters."""
    return [(SLOTS[kind], access, "array<vec2<u32>>")] if kind in SLOTS else []


def whole(kind: str) -> str:
    """What the vector is called that is updated."""
    return "whole" if kind in SLOTS else PARAM


def load(kind: str) -> list[str]:
    """Statements after which it has that name; `param` is loaded."""
    halves = halves_of(SLOTS[kind]) if kind in SLOTS else []
    join = "join_halves" if kind == "master" else "add_cut_off"
    parts = [f"{join}(param.{lane}, {half})" for lane, half in zip(_LANES, halves, strict=False)]
    return [f"let whole = vec4<f32>({', '.join(parts)});"] if parts else []


def store(kind: str, value: str, seed: str = "") -> list[str]:
    """Statements that store a vector of wholes at `at`.

    Args:
        kind: how.
        value: an expression, a vec4<f32>.
        seed: an expression of a u32, for rounding at random; without it to the nearest.
    """
    if not kind:
        return [f"params[at] = {value};"]
    rounded = {
        "master": "upper_half(new_param.{lane})",
        "kahan": "from_bfloat16(to_bfloat16(new_param.{lane}))",
        "stochastic": "from_bfloat16(to_bfloat16(new_param.{lane}))"
        if not seed
        else "from_bfloat16(to_bfloat16_stochastic(new_param.{lane}, rounding_bits(at * 4u + {number}u, {seed})))",
    }[kind]
    parts = (rounded.format(lane=lane, number=number, seed=seed) for number, lane in enumerate(_LANES))
    lines = [f"let new_param = {value};", f"let rounded = vec4<f32>({', '.join(parts)});", "params[at] = rounded;"]
    if kind == "master":
        lines.append(f"master_low[at] = {packed([f'lower_half(new_param.{lane})' for lane in _LANES])};")
    elif kind == "kahan":
        cut_off = packed([f"to_bfloat16(new_param.{lane} - rounded.{lane})" for lane in _LANES])
        lines.append(f"kahan_comp[at] = {cut_off};")
    return lines
