"""The kernel and the table by which a device follows schedules: a row for each value, its constants and its counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..runtime.device import Device
from ..runtime.option_kernels import OptionKernel, OptionTable, OptionWords
from .formulas import LARGEST, Schedule, imports

__all__ = ["Scheduled", "fits", "schedule_table"]

_MOST_CONSTANTS = 960  # a struct of WGSL has at most 1023 members


class Scheduled(NamedTuple):
    """An option of a group on a device.

    Attributes:
        words: the words of the table `hyper` that are written.
        base: what the first schedule is applied to.
        chain: schedules, each applied to the value of the one before; and the number of the count of each.
    """

    words: OptionWords
    base: float
    chain: Sequence[tuple[int, Schedule]]

    @property
    def constants(self) -> list[float]:
        """The constants of the chain, as float32 can have them."""
        return [max(-LARGEST, min(value, LARGEST)) for _, schedule in self.chain for value in schedule.constants]

    @property
    def form(self) -> tuple[str, str]:
        """The body of the function that computes the value from a row, and how many of its schedulers take a step."""
        body, value, first = "", "row.base", 0
        for number, (count, schedule) in enumerate(self.chain):
            body += f"    let value{number} = {schedule.text(f'row.count{count}', value, 'row.k', first)};\n"
            value, first = f"value{number}", first + len(schedule.constants)
        return f"{body}    return {value};\n", " + ".join(f"step{count}" for count, _ in self.chain)


def fits(chain: Sequence[Schedule]) -> bool:
    """Return True if a kernel can have the constants of schedules that are applied one after the other."""
    return sum(len(schedule.constants) for schedule in chain) <= _MOST_CONSTANTS


def schedule_table(device: Device, rows: Sequence[Scheduled], counts: Sequence[float]) -> OptionTable:
    """The table of these rows. A step of the scheduler `n` is the parameter `step<n>`: 1, or 0 where it takes none.

    Args:
        device: where the table is.
        rows: the options.
        counts: the count of each scheduler.
    """
    forms = {form: number for number, form in enumerate(dict.fromkeys(row.form for row in rows))}
    width = max(len(row.constants) for row in rows)
    kernel = OptionKernel.of("schedule", _module(list(forms), len(counts), width))
    heads = [[*row.words, forms[row.form], row.base, *counts, *row.constants] for row in rows]
    length = len(kernel.members)
    return OptionTable(device, kernel, [head + [0.0] * (length - len(head)) for head in heads])


def _module(forms: Sequence[tuple[str, str]], counts: int, constants: int) -> str:
    """The map module of `OptionKernel`, with a function for each form of a row."""
    numbered = [*(f"count{number}" for number in range(counts)), *(f"k{number}" for number in range(constants))]
    members = ", ".join(f"{name}: f32" for name in (*OptionWords._fields, "form", "base", *numbered))
    functions = "".join(f"fn form{number}(row: Row) -> f32 {{\n{body}}}\n\n" for number, (body, _) in enumerate(forms))
    value, steps = "form0(now)", forms[0][1]
    for number, (_, own_steps) in enumerate(forms[1:], 1):
        value = f"select({value}, form{number}(now), row.form == {number}.0)"
        steps = f"select({steps}, {own_steps}, row.form == {number}.0)"
    parameters = "".join(f", step{number}: f32" for number in range(counts))
    counted = "".join(f"    now.count{number} += step{number};\n" for number in range(counts))
    return f"""import package::schedules::option::{{Option, option_of}};
{imports(functions)}
struct Row {{ {members} }}
struct Followed {{ row: Row, option: Option }}

{functions}fn follow(row: Row{parameters}) -> Followed {{
    var now = row;
{counted}    return Followed(now, option_of({value}, {steps} > 0.0));
}}
"""
