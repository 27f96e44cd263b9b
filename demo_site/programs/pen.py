"""`Pen`: a GPT generates text on the device, which samples characters and feeds them back; the host reads several."""

from __future__ import annotations

from array import array
from typing import Any

import optirs_web as ow
from optirs_web.ops import concat

STROKE = 8
"""Characters of one submit and one read."""

_TINY = 1e-30  # added to uniform numbers, since 0 has no logarithm


class Pen:
    """A generator of texts by a model; several texts can be in progress.

    Args:
        model: returns logits (1, block, characters) of codes (1, block), int32.
        block: the number of characters that the model sees.
        padding: the code that fills a text shorter than a block.
    """

    def __init__(self, model: Any, block: int, padding: int = 0) -> None:
        self._model, self._block, self._padding = model, block, padding
        self._stroke = ow.compile(self._draw, device=model.head.weight.device)
        self._texts: dict[str, tuple[ow.Tensor, ow.Tensor, list[int]]] = {}

    def begin(self, name: str, codes: memoryview, temperature: float) -> None:
        """Begin a text of this name after the last block of `codes`; shorter codes are padded at the front."""
        seen = array("i", [self._padding] * self._block) + array("i", codes)
        last = memoryview(seen[-self._block :]).cast("B").cast("i", (1, self._block))
        self._texts[name] = ow.tensor(last), ow.tensor([temperature]), []

    async def write(self, name: str) -> list[int]:
        """Generate `STROKE` more characters, and return the codes of all characters of the text so far."""
        codes, temperature, written = self._texts[name]
        codes = self._stroke(codes, temperature)
        (row,) = await codes.tolist_async()
        written += row[-STROKE:]
        self._texts[name] = codes, temperature, written
        return written

    def _draw(self, codes: ow.Tensor, temperature: ow.Tensor) -> ow.Tensor:
        """Return the codes after `STROKE` samples of the softmax: each the largest of the logits plus Gumbel noise."""
        with ow.no_grad():
            for _ in range(STROKE):
                logits = self._model(codes)[:, -1]
                uniform = ow.rand(logits.shape, device=codes.device)
                noise = -(-(uniform + _TINY).log()).log()
                following = (logits / temperature + noise).argmax(-1)
                codes = concat([codes[:, 1:], following.reshape(1, 1)], axis=1)
        return codes
