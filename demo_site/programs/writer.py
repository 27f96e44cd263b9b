"""Train the GPT of examples/gpt.py while a visitor watches its texts, and let it continue the visitor's prompts.

The page runs `run_in_page`. The other classes know the page only as an object with the methods of `Page`.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from array import array
from collections import Counter
from typing import Any, NamedTuple, Protocol

import gpt
from pen import Pen
from recipes import COMMON, OPTIMIZERS, recipe

import optirs_web as ow
from optirs_web.nn import functional as F

SAMPLE, ANSWER = 200, 240
"""The number of characters that the model writes by itself, and after a prompt."""

TEMPERATURE = 0.6  # of the texts that it writes by itself

LONGEST_PROMPT = 500
LONGEST_TEXT = 1_000_000
MOST_CHARACTERS = 4096
"""The largest number of different characters of a model: the most frequent of the text. The others become `RARE`."""
RARE = "\ufffd"
HELD_OUT = 10  # 1/HELD_OUT of the text, at its end, is held out
SHORTEST, LONGEST, MOST_STEPS = 0.06, 0.25, 32
"""Seconds between two reads of messages: the number of steps between them adapts until they take that long."""

AT_THE_PEN = 0.04
"""Seconds between two reads of messages after which a text is continued later, so that training does not wait."""


class Size(NamedTuple):
    """The size of a model, and the number of pieces of text in a step."""

    block: int
    width: int
    layers: int
    heads: int
    batch: int

    def weights(self, characters: int) -> int:
        """Return the number of trained parameters."""
        inside = self.layers * (12 * self.width + 13) * self.width
        return inside + (2 * characters + self.block + 2) * self.width + characters


SIZES = {
    "small": Size(32, 32, 1, 2, 8),
    "medium": Size(gpt.BLOCK, gpt.WIDTH, gpt.LAYERS, gpt.HEADS, gpt.BATCH),
    "large": Size(128, 128, 4, 4, 32),
}


_RATES = {"AdamW": gpt.RATE, "Adam": gpt.RATE, "Shampoo": 0.03}  # where the rate of the digits trains badly here


class Page(Protocol):
    """The page: receives reports, and sends messages."""

    def emit(self, kind: str, report: str) -> None:
        """Send a report, as JSON."""

    def take(self) -> str | None:
        """Return the next message as JSON, {"kind", "value"}; None if there is none."""

    async def pause(self) -> None:
        """Let messages arrive."""

    async def wait(self) -> None:
        """Wait for a message."""


class Refused(ValueError):
    """The visitor's input cannot be used; the message says why."""


class Text(NamedTuple):
    """A text that a model can learn from.

    Attributes:
        content: its characters.
        replaced: the number of different characters above the limit, which became `RARE`.
    """

    content: str
    replaced: int

    @classmethod
    def of(cls, text: str) -> Text:
        """Return a text with Python's line ends, in which characters too rare for the model are one character.

        Raises:
            Refused: the text is too long, or has fewer than two different characters.
        """
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) > LONGEST_TEXT:
            raise Refused(f"The text has {len(text):,} characters; this page trains on at most {LONGEST_TEXT:,}.")
        counts = Counter(text)
        if len(counts) < 2:
            raise Refused("The text needs at least two distinct characters.")
        if len(counts) <= MOST_CHARACTERS:
            return cls(text, 0)
        rare = [character for character, _ in counts.most_common()[MOST_CHARACTERS - 1 :]]
        return cls(text.translate(dict.fromkeys(map(ord, rare), RARE)), len(rare))

    def parts(self, codes: memoryview, size: Size) -> tuple[memoryview, memoryview, bool]:
        """Return the text to learn, the text held out, and True where these are different.

        A text too short for a model of this size is repeated, and all of it is learned.
        """
        least = 2 * size.batch * size.block
        if len(codes) >= least:
            learned = len(codes) - len(codes) // HELD_OUT
            return codes[:learned], codes[learned:], True
        repeated = memoryview(array("i", codes) * math.ceil(least / len(codes)))
        return repeated, repeated, False


class Training:
    """A model that learns a text, and its optimizer, which may be changed at any time.

    Args:
        text: the text to learn from.
        size: a key of `SIZES`.
        optimizer: the name of one of the recipes.
        lr: its learning rate; None means one that trains well.
        seed: of the first weights and the order of the pieces.
    """

    def __init__(self, text: Text, size: str, optimizer: str = "AdamW", lr: float | None = None, seed: int = 0) -> None:
        ow.manual_seed(seed)
        self.size_name, self.size, self.seed, self.steps = size, SIZES[size], seed, 0
        self.alphabet = gpt.Alphabet(text.content)
        learned, held_out, self.is_held_out = text.parts(self.alphabet.codes(text.content), self.size)
        block, width, layers, heads, batch = self.size
        self.model = gpt.GPT(len(self.alphabet.characters), block, width, layers, heads)
        self._batches = gpt.batches(self.model, learned, batch, seed)
        self._held_out = pieces(held_out, block, 2 * batch)
        self._loss = ow.compile(self._loss_without_gradients, device=ow.device())
        self.pen = Pen(self.model, block, self.alphabet.characters.index(self.alphabet.padding))
        self.choose_optimizer(optimizer, lr)

    def choose_optimizer(self, name: str, lr: float | None = None) -> None:
        """Continue from the same weights with another optimizer, whose state is new."""
        chosen = recipe(name)
        lr = _RATES.get(chosen.name, chosen.lr) if lr is None else lr
        self.optimizer = chosen.make(self.model.parameters(), lr)
        self.optimizer_name, self.lr = chosen.name, lr
        self._step = gpt.train_step(self.model, self.optimizer)

    def set_rate(self, lr: float) -> None:
        """Continue with another learning rate."""
        if not (math.isfinite(lr) and lr >= 0):
            raise Refused(f"The learning rate must be 0 or greater, not {lr}.")
        self.lr = lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def step(self) -> ow.Tensor:
        """Train one step and return its loss, on the device."""
        loss: ow.Tensor = self._step(*next(self._batches))
        self.steps += 1
        return loss

    async def held_out_loss(self) -> float:
        """Return the mean cross-entropy on pieces of the part that is held out."""
        return await self._loss(*self._held_out).item_async()

    def _loss_without_gradients(self, codes: ow.Tensor, following: ow.Tensor) -> ow.Tensor:
        with ow.no_grad():
            logits = self.model(codes)
            return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1))

    def lines(self) -> str:
        """Return the program that is running, without the code for the page."""
        block, width, layers, heads, batch = self.size
        chosen = recipe(self.optimizer_name)
        options = "".join(f", {name}={value!r}" for name, value in chosen.options.items())
        return (
            "import gpt\n"
            "import optirs_web as ow\n\n"
            "alphabet = gpt.Alphabet(book)\n"
            "model = gpt.GPT(len(alphabet.characters),\n"
            f"    block={block}, width={width}, layers={layers}, heads={heads})\n"
            f"optimizer = ow.optim.{chosen.name}(\n"
            f"    model.parameters(), lr={self.lr!r}{options})\n"
            "step = gpt.train_step(model, optimizer)\n\n"
            "codes = alphabet.codes(book)\n"
            f"for given, following in gpt.batches(model, codes, {batch}):\n"
            "    loss = step(given, following)\n"
        )


def pieces(codes: memoryview, block: int, count: int) -> tuple[ow.Tensor, ow.Tensor]:
    """Return `count` pieces at equal distances, (n, block), and the characters that follow each of theirs."""
    last = len(codes) - 1 - block
    starts = sorted({last * number // (count - 1) for number in range(count)})
    tensors = []
    for shift in (0, 1):
        joined = array("i", (code for start in starts for code in codes[start + shift : start + shift + block]))
        tensors.append(ow.tensor(memoryview(joined).cast("B").cast("i", (len(starts), block))))
    return tensors[0], tensors[1]


class Writing(NamedTuple):
    """A text in progress: its kind, and the step and loss of the model when it began."""

    name: str  # "sample" or "answer"
    number: int
    step: int
    loss: float | None
    length: int
    prompt: str


class Session:
    """A training that messages of the page control, and that reports the model's texts."""

    def __init__(self, page: Page, text: str) -> None:
        self.page = page
        self.book = self.text = Text.of(text)
        self.is_paused = False
        self.training = Training(self.book, "small" if ow.device().info.software else "medium")
        self._count = 1  # steps at a time
        self._has_diverged = False
        self._next_look = self._samples = self._answers = 0
        self._writing: dict[str, Writing] = {}  # by name: at most one of each
        self._is_closed = False

    def report(self, kind: str, **values: Any) -> None:
        """Send a report to the page."""
        self.page.emit(kind, json.dumps(values))

    def report_choices(self) -> None:
        """Report the available choices and the current ones."""
        training, characters = self.training, len(self.training.alphabet.characters)
        self.report(
            "choices",
            optimizers=[
                {"name": entry.name, "common": entry in COMMON, "lr": _RATES.get(entry.name, entry.lr)}
                for entry in OPTIMIZERS.values()
            ],
            sizes=[
                {"name": name, "weights": size.weights(characters), **size._asdict()} for name, size in SIZES.items()
            ],
            size=training.size_name,
            optimizer=training.optimizer_name,
            lr=training.lr,
            seed=training.seed,
            text={
                "characters": len(self.text.content),
                "different": characters,
                "replaced": self.text.replaced,
                "is_held_out": training.is_held_out,
                "is_book": self.text is self.book,
            },
            longest_text=LONGEST_TEXT,
            lines=training.lines(),
            paused=self.is_paused,
            software=ow.device().info.software,
        )

    async def run(self) -> None:
        """Train and write until the message "close"."""
        self.report_choices()
        while True:
            await self._listen()
            if self._is_closed:
                return
            try:
                await self._advance()
            except ow.errors.DeviceLostError:
                raise  # the model was on the device
            except Exception as error:
                self._stop_after(error)
            await self.page.pause()

    async def _advance(self) -> None:
        if not self.is_paused:
            if self.training.steps >= self._next_look:
                await self._look()
            await self._train()
        await self._write()

    def _stop_after(self, error: Exception) -> None:
        """Pause, so that the visitor can choose something else."""
        self.is_paused = True
        self._writing.clear()
        self.report("failed", message=described(error))

    async def _train(self) -> None:
        training = self.training
        began = time.perf_counter()
        losses = [training.step() for _ in range(self._count)]
        values = await asyncio.gather(*(loss.item_async() for loss in losses))
        seconds = max(time.perf_counter() - began, 1e-9)
        if not all(map(math.isfinite, values)):
            self.is_paused = self._has_diverged = True
            self._writing.clear()
            self.report("diverged", step=training.steps, lr=training.lr, optimizer=training.optimizer_name)
            return
        speed = len(values) / seconds
        per_step = training.size.batch * training.size.block
        self.report("steps", step=training.steps, losses=values, speed=speed, characters=speed * per_step)
        if seconds < SHORTEST:
            self._count = min(2 * self._count, MOST_STEPS)
        elif seconds > LONGEST:
            self._count = max(1, self._count // 2)

    async def _look(self) -> None:
        """Report the held-out loss, and begin a text unless one is in progress; less often as training goes on."""
        training = self.training
        loss = await training.held_out_loss()
        self.report("held_out", step=training.steps, loss=loss if math.isfinite(loss) else None)
        self._next_look = training.steps + min(200, max(10, training.steps // 4))
        if "sample" not in self._writing:
            self._samples += 1
            self._begin(
                Writing("sample", self._samples, training.steps, loss, SAMPLE, training.alphabet.padding), TEMPERATURE
            )

    def _begin(self, writing: Writing, temperature: float) -> None:
        self.training.pen.begin(writing.name, self.training.alphabet.codes(writing.prompt), temperature)
        self._writing[writing.name] = writing

    async def _write(self) -> None:
        """Generate and report a few characters of each text in progress."""
        training = self.training
        for name, writing in list(self._writing.items()):
            began, codes = time.perf_counter(), await training.pen.write(name)
            while len(codes) < writing.length and time.perf_counter() - began < AT_THE_PEN:
                codes = await training.pen.write(name)
            text = "".join(training.alphabet.characters[code] for code in codes[: writing.length])
            is_done = len(codes) >= writing.length
            if is_done:
                del self._writing[name]
            self.report("written", **writing._asdict(), until=training.steps, text=text, done=is_done)

    async def _listen(self) -> None:
        """Handle all messages; while there is nothing to do, wait for more."""
        while True:
            while (message := self.page.take()) is not None:
                content = json.loads(message)
                try:
                    self._handle(content["kind"], content["value"])
                except ow.errors.DeviceLostError:
                    raise
                except Exception as error:
                    self.report("refused", what=content["kind"], message=described(error))
            if self._is_closed or not self.is_paused or self._writing:
                return
            await self.page.wait()

    def _handle(self, kind: str, value: Any) -> None:
        training = self.training
        if kind == "optimizer":
            training.choose_optimizer(value)
            self.report_choices()
        elif kind == "lr":
            training.set_rate(float(value))
            self.report("lines", lines=training.lines())
        elif kind == "pause":
            self.is_paused = True
        elif kind == "resume":
            self.is_paused = False
        elif kind == "prompt":
            self._answer(value["text"], float(value["temperature"]))
        elif kind == "reset":
            self._restart(self.text, training.size_name)
        elif kind == "begin":
            self._restart(self.text, **value)
        elif kind == "size":
            self._restart(self.text, value)
        elif kind == "text":
            self._restart(self.book if value is None else Text.of(value), training.size_name)
        elif kind == "choices":
            self.report_choices()
        elif kind == "close":
            self._is_closed = True
        else:
            raise ValueError(f"unknown message '{kind}'")

    def _answer(self, prompt: str, temperature: float) -> None:
        """Continue a visitor's text."""
        if self._has_diverged:
            raise Refused("Training has diverged. Start over first.")
        if not prompt or len(prompt) > LONGEST_PROMPT:
            raise Refused(f"The prompt must have 1 to {LONGEST_PROMPT} characters, not {len(prompt):,}.")
        if unknown := sorted(set(prompt) - set(self.training.alphabet.characters)):
            shown = " ".join(
                character if character.isprintable() else f"U+{ord(character):04X}" for character in unknown[:8]
            )
            raise Refused(f"The training text does not contain these characters: {shown}")
        self._answers += 1
        writing = Writing("answer", self._answers, self.training.steps, None, ANSWER, prompt)
        self._begin(writing, min(max(temperature, 0.05), 2.0))

    def _restart(self, text: Text, size: str, **choices: Any) -> None:
        """Restart with new weights for a text and a size; `choices` of `Training` default to the earlier ones."""
        before = self.training
        choices = choices or {"optimizer": before.optimizer_name, "lr": before.lr, "seed": before.seed + 1}
        self.training = Training(text, size, **choices)
        self.text = text
        self.is_paused = self._has_diverged = False
        self._count, self._next_look, self._samples = 1, 0, 0
        self._writing.clear()
        self.report("begun")
        self.report_choices()


def described(error: Exception) -> str:
    """Return an error as a sentence, with the type where it is not an error of this library."""
    is_ours = isinstance(error, (Refused, ow.errors.OptirsError))
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


async def run_in_page(text: memoryview) -> None:
    """Run a session with the page in which this Python runs; the text is ASCII."""
    import page

    await Session(page, bytes(text).decode()).run()
