"""A small GPT learns to write like Jane Austen, character by character.

    .venv/bin/python examples/gpt.py --device cpu --steps 600

It trains wherever optirs_web runs, in a page too: `train` takes the text and a device and yields losses, `write` lets
the model continue a text. Needs no NumPy.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from itertools import islice
from typing import Any

import optirs_web as ow
from optirs_web import nn
from optirs_web.nn import functional as F

BLOCK, WIDTH, LAYERS, HEADS = 64, 64, 2, 4
BATCH, RATE = 16, 6e-3
PROMPT = "Catherine "


class Block(nn.Module):
    """Attention to earlier positions, then an MLP for each position, each with a residual connection."""

    def __init__(self, width: int, heads: int, device: str | None) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, device=device)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True, device=device)
        self.norm2 = nn.LayerNorm(width, device=device)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width, device=device), nn.GELU("tanh"), nn.Linear(4 * width, width, device=device)
        )

    def forward(self, x: ow.Tensor) -> ow.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False, is_causal=True)[0]
        return x + self.network(self.norm2(x))


class GPT(nn.Module):
    """Logits of the next character at each position: (n, length) int32 to (n, length, characters)."""

    def __init__(self, characters: int, block: int = BLOCK, width: int = WIDTH, layers: int = LAYERS,
                 heads: int = HEADS, device: str | None = None) -> None:  # fmt: skip
        super().__init__()
        self.block = block
        self.character = nn.Embedding(characters, width, device=device)
        self.position = nn.Embedding(block, width, device=device)
        self.blocks = nn.Sequential(*(Block(width, heads, device) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, device=device)
        self.head = nn.Linear(width, characters, device=device)
        for embedding in (self.character, self.position):
            nn.init.normal_(embedding.weight, std=0.2)

    def forward(self, codes: ow.Tensor) -> ow.Tensor:
        x = self.character(codes) + self.position.weight[: codes.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Alphabet:
    """The characters of a text, by number. `padding` fills short texts: a line break, if the text has any."""

    def __init__(self, text: str) -> None:
        self.characters = "".join(sorted(set(text)))
        self.padding = "\n" if "\n" in self.characters else self.characters[0]

    def codes(self, text: str) -> memoryview:
        """Return the numbers of a text's characters, as int32."""
        numbers = {character: number for number, character in enumerate(self.characters)}
        return memoryview(array("i", map(numbers.__getitem__, text)))


def batches(model: GPT, codes: Any, batch: int = BATCH, seed: int = 0) -> Iterator[Any]:
    """Yield pieces of a text, (batch, block), and their next characters, epoch after epoch."""
    codes = memoryview(codes)
    count = (len(codes) - 1) // model.block
    parts = [codes[start : start + count * model.block].cast("B") for start in (0, 1)]
    data = nn.TensorDataset(*(part.cast("i", (count, model.block)) for part in parts))
    device = model.head.weight.device
    loader = nn.DataLoader(data, batch, shuffle=True, drop_last=True, seed=seed, device=device)
    while True:
        yield from loader


def train_step(model: GPT, optimizer: ow.optim.Optimizer) -> Any:
    """Return a step that is recorded once and replayed: from characters and the next ones to the loss."""

    def step(codes: ow.Tensor, following: ow.Tensor) -> ow.Tensor:
        optimizer.zero_grad()
        logits = model(codes)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return ow.compile(step)


def train(model: GPT, codes: Any, steps: int, batch: int = BATCH, seed: int = 0) -> Iterator[ow.Tensor]:
    """Train a model on a text, given as int32; yields the loss of each step, on the device."""
    step = train_step(model, ow.optim.AdamW(model.parameters(), lr=RATE))
    for inputs in islice(batches(model, codes, batch, seed), steps):
        yield step(*inputs)


def write(
    model: GPT, alphabet: Alphabet, prompt: str, length: int, temperature: float = 0.8, seed: int = 0
) -> Iterator[str]:
    """Continue a text, one character at a time: one submit and one read for each."""
    device = model.head.weight.device
    chances = ow.compile(lambda codes: (model(codes)[0, -1] / temperature).softmax(-1), device=device)
    draw = random.Random(seed)
    text = prompt.rjust(model.block, alphabet.padding)
    with ow.no_grad():
        for _ in range(length):
            codes = alphabet.codes(text[-model.block :]).cast("B").cast("i", (1, model.block))
            (character,) = draw.choices(alphabet.characters, chances(codes).tolist())
            text += character
            yield character


def main() -> None:
    """Train on the book, print losses and texts of the model, draw the losses."""
    import running  # next to this file; a page does not need it

    options = running.options(__doc__, steps=600)
    ow.manual_seed(options.seed)
    book = ow.datasets.load_book()
    alphabet = Alphabet(book)
    model = GPT(len(alphabet.characters), device=options.device)
    losses: list[float] = []
    steps = train(model, alphabet.codes(book), options.steps, seed=options.seed)
    for number in running.followed(steps, losses):
        if number % 200 == 0:
            print(PROMPT + "".join(write(model, alphabet, PROMPT, 240, seed=options.seed)) + "\n", flush=True)
    if options.out:
        running.draw(losses, options.out / "gpt.png")


if __name__ == "__main__":
    main()
