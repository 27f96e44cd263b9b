"""The tables that the kernels of an optimizer read, as `wgsl.rule_shell` declares them, but for those of its shards.

Tensors are numbered in the order of the parameter groups; one more number stands for tensors of an arena that belong
to another optimizer. `tensors` has an entry for each tensor, `hyper` a row for each group, and `tensor_scalars` a row
for each tensor: is_active, hyper, scalars, and counters of transforms.
"""

from __future__ import annotations

import struct
import weakref
from array import array
from collections.abc import Mapping, Sequence

from ..errors import UnsupportedError
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.program import Program
from ..runtime.rules import Rule
from ..wgsl.rule_shell import ENTRY_WORDS

__all__ = ["HostTable", "HyperTable", "ScalarTable", "TensorTable"]

_NOT_WRITTEN = b"\xff\xff\xff\xff"  # stands for words that the host does not write: a NaN that no option is


class HostTable:
    """A table that the host writes when its content changes."""

    def __init__(self, device: Device, words: int) -> None:
        self.view = View.whole(device.allocate_zeroed(4 * words))
        self._content = b""

    def write(self, content: bytes) -> None:
        """Write the content, unless it is on the device already."""
        if content != self._content:
            self.view.buffer.device.write(self.view, memoryview(content))
            self._content = content


class TensorTable:
    """The table `tensors`: the group, the bits and the blocks of each tensor.

    Attributes:
        bits: for each tensor, whether it is trained, and the bits of the transforms that apply to it.
    """

    def __init__(self, device: Device, groups: Sequence[int], block_ranges: Sequence[tuple[int, int, int]]) -> None:
        self.device = device
        self.bits: Sequence[tuple[bool, int]] = [(True, 0)] * len(groups)
        self._groups = groups
        self._block_ranges = block_ranges
        self._table = HostTable(device, ENTRY_WORDS * (len(groups) + 1))
        self._live: Sequence[bool] | None = None  # the last argument of `_content`, and its result
        self._words: array[int]

    @property
    def view(self) -> View:
        """The table of steps that are not recorded."""
        return self._table.view

    def upload(self, live: Sequence[bool]) -> View:
        """Write the table for the tensors with a gradient, and return its view."""
        self._table.write(self._content(live).tobytes())
        return self.view

    def recorded(self, live: Sequence[bool], recording: Program) -> View:
        """Return the view of a table that a recording keeps, for the tensors that have a gradient in it."""
        table = self.new_table(live)
        recording.keep(table.buffer)
        return table

    def new_table(self, live: Sequence[bool]) -> View:
        """Return the view of another table."""
        return View.whole(self.device.constant(self._content(live)))

    def _content(self, live: Sequence[bool]) -> array[int]:
        if self._live != live:  # which seldom changes, and there may be hundreds
            words = array("I")
            entries = zip(self._groups, live, self._block_ranges, self.bits, strict=True)
            for group, is_live, block_range, (is_trained, bits) in entries:
                words.extend((group, bits | (is_live and is_trained), *block_range))
            words.extend([0] * ENTRY_WORDS)
            self._live, self._words = [*live], words
        return self._words


class HyperTable:
    """The table `hyper`: rows of hyper-parameters, some of which schedules write and some of which are tensors.

    Attributes:
        rows: the values that the host wrote.
        scheduled: words that schedules have written since the host did.
        copied: words that are copied from views before each step.
    """

    def __init__(self, device: Device, names: Sequence[str], rows: int) -> None:
        self.device = device
        self.names = names
        self.view = View.whole(device.allocate_zeroed(4 * len(names) * rows))
        self.rows: list[list[float]] = [[0.0] * len(names) for _ in range(rows)]
        self.scheduled: set[int] = set()
        self.copied: Mapping[int, View] = {}
        self._content = bytes(self.view.nbytes)
        self._recorded: tuple[weakref.ref[Program], bytes] | None = None

    def word(self, row: int, name: str) -> int:
        """Return the word of an option of a row."""
        return len(self.names) * row + self.names.index(name)

    def word_view(self, word: int) -> View:
        """Return the view of a word."""
        return self.view.part(4 * word, 4)

    def write(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Write the words that have changed, but for those in `scheduled` and `copied`."""
        self.rows = [[row[name] for name in self.names] for row in rows]
        words = [word for row in self.rows for word in row]
        content = bytearray(struct.pack(f"<{len(words)}f", *words))
        for word in (*self.scheduled, *self.copied):
            content[4 * word : 4 * word + 4] = _NOT_WRITTEN
        before = self._content
        end = 0
        for start in range(0, len(content), 4):
            if start < end or not _is_to_write(content, before, start):
                continue
            end = start + 4
            while end < len(content) and _is_to_write(content, before, end):
                end += 4
            self.device.write(self.view.part(start, end - start), memoryview(content)[start:end])
        self._content = bytes(content)

    def check_unchanged(self, recording: Program) -> None:
        """Check that the steps of a recording all have the same hyper-parameters.

        Raises:
            UnsupportedError: an earlier step of the recording had others.
        """
        if self._recorded is not None and self._recorded[0]() is recording and self._recorded[1] != self._content:
            raise UnsupportedError("a compiled step can step an optimizer several times, but not with changed options")
        self._recorded = (weakref.ref(recording), self._content)


def _is_to_write(content: bytearray, before: bytes, offset: int) -> bool:
    word = content[offset : offset + 4]
    return word != before[offset : offset + 4] and word != _NOT_WRITTEN


class ScalarTable:
    """The table `tensor_scalars`: for each tensor is_active, its hyper-parameters, scalars and counters of transforms.

    Attributes:
        words: of a row.
    """

    def __init__(self, device: Device, rule: Rule, tensors: int) -> None:
        self.device = device
        self.rule = rule
        self.tensors = tensors
        self._counters = 1 + len(rule.transforms) if rule.stages else 0
        self.words = 1 + len(rule.hyper) + len(rule.scalars) + self._counters
        self.view = View.whole(device.allocate_zeroed(4 * self.words * (tensors + 1)))

    def _first_scalar(self, number: int) -> int:
        """Return the word where the scalars of a tensor begin."""
        return self.words * number + 1 + len(self.rule.hyper)

    def read(self, content: memoryview) -> list[dict[str, float]]:
        """Return the scalars of each tensor, by name, from the content of the table."""
        values, names = content.cast("f"), self.rule.scalars
        starts = (self._first_scalar(number) for number in range(self.tensors))
        return [dict(zip(names, values[start : start + len(names)], strict=True)) for start in starts]

    def read_counters(self, content: memoryview) -> list[dict[str, float]]:
        """Return the counters of transforms of each tensor, by name, from the content of the table."""
        values, bits = content.cast("f"), content.cast("I")
        counters = []
        for number in range(self.tensors):
            first_word = self._first_scalar(number) + len(self.rule.scalars) + 1
            tensor_counters = {}
            for name, index in self.rule.counters.items():
                is_integer = self.rule.transforms[index].type == "u32"
                tensor_counters[name] = float((bits if is_integer else values)[first_word + index])
            counters.append(tensor_counters)
        return counters

    def write(self, rows: Sequence[Mapping[str, float]], hyper: Sequence[Sequence[float]]) -> None:
        """Set the scalars of each tensor; those not named become 0, and `advance` computes them.

        Args:
            rows: the scalars and counters of each tensor, by name.
            hyper: the hyper-parameters of each, which parts of a rule that run outside a step read here.
        """
        words: list[float] = []
        for row, tensor_hyper in zip(rows, hyper, strict=True):
            words += [0.0, *tensor_hyper, *(row.get(name, 0.0) for name in self.rule.scalars)]
            counters = [0.0] * self._counters
            for name, index in self.rule.counters.items():
                value = row.get(name, 0.0)
                if self.rule.transforms[index].type == "u32":
                    (value,) = struct.unpack("<f", struct.pack("<I", int(value)))
                counters[1 + index] = value
            words += counters
        content = struct.pack(f"<{len(words)}f", *words)
        self.device.write(self.view.part(0, len(content)), memoryview(content))

    def views(self, names: Sequence[str]) -> list[dict[str, View]]:
        """Return the views of these scalars of each tensor."""
        offsets = {name: self.rule.scalars.index(name) for name in names}
        return [
            {name: self.view.part(4 * (self._first_scalar(number) + offset), 4) for name, offset in offsets.items()}
            for number in range(self.tensors)
        ]

    def take_over(self, old: ScalarTable) -> None:
        """Copy the table of the same tensors, to which some may have been appended."""
        if old.words == self.words:
            nbytes = 4 * self.words * old.tensors
            self.device.copy(old.view.part(0, nbytes), self.view.part(0, nbytes))
        else:  # other transforms
            nbytes = 4 * min(self.words, old.words)
            for number in range(old.tensors):
                source = old.view.part(4 * old.words * number, nbytes)
                self.device.copy(source, self.view.part(4 * self.words * number, nbytes))
        if self.rule.over_all:  # values that all tensors share are copied to the new ones
            common = [name for name in self.rule.scalars if name != "step"]
            old_scalars, *_ = old.views(common)
            for new_scalars in self.views(common)[old.tensors :]:
                for name in common:
                    self.device.copy(old_scalars[name], new_scalars[name])
