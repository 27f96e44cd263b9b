"""Train on the handwritten digits while a visitor changes settings, and recognise the visitor's drawings.

The page runs `run_in_page`. The other classes know the page only as an object with the methods of `Page`.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

from digit_images import CLASSES, PIXELS, Images, drawn_image, epoch_order, load_images, softmax
from recipes import COMMON, OPTIMIZERS, recipe

import optirs_web as ow

HIDDEN = 256
BATCH = 64
EPOCHS = 25
WARM_UP = 2  # epochs
DECAY = 0.92  # of the learning rate, each epoch
STEPS_BETWEEN = 8
"""Steps after which the host waits for the device, so that messages are handled soon."""

WRONG_SHOWN = 60


Schedule = ow.optim.schedules.Schedule


def schedules(steps: int) -> dict[str, Schedule]:
    """Return schedules of the learning rate's factor by name, for epochs of this number of steps."""
    factories = ow.optim.schedules
    return {
        "exponential decay": factories.exponential_decay(1.0, steps, DECAY),
        "cosine": factories.cosine_decay_schedule(1.0, EPOCHS * steps),
        "warm-up, then cosine": factories.warmup_cosine_decay_schedule(0.0, 1.0, WARM_UP * steps, EPOCHS * steps),
        "constant": factories.constant_schedule(1.0),
    }


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


class Training:
    """The network and its optimizer, which may be changed at any time.

    Args:
        data: the data of `load_images`.
        device: where it is trained; None means the default device.
        seed: of the first weights and the order of the images.
    """

    def __init__(self, data: bytes | memoryview, device: ow.Device | str | None = None, seed: int = 0) -> None:
        self.device = ow.device(device)
        self.seed = seed
        self.train, self.test, self.standard = load_images(data)
        self.epoch = 0
        self.steps = 0
        self.schedules = schedules(-(-len(self.train.rows) // BATCH))
        self.schedule = next(iter(self.schedules))
        self.rate = 0.0  # of the latest step
        self.parameters = _first_parameters(self.device, seed)
        self._logits = ow.compile(self._forward, device=self.device)
        self.choose_optimizer(COMMON[0].name)

    def choose_optimizer(self, name: str, lr: float | None = None) -> None:
        """Continue from the same weights with another optimizer, whose state is new."""
        chosen = recipe(name)
        self.lr = chosen.lr if lr is None else lr
        self.optimizer_name = chosen.name
        self.optimizer = chosen.make(self.parameters, self.lr)
        schedule = self.schedules[self.schedule]
        self._scheduler = ow.optim.lr_scheduler.ScheduleLR(self.optimizer, schedule, relative=True)
        self._scheduler.change(last_epoch=self.steps)
        self._step = ow.compile(self._train_step, device=self.device)

    def _forward(self, images: ow.Tensor) -> ow.Tensor:
        weight0, bias0, weight1, bias1 = self.parameters
        with ow.no_grad():
            return (images @ weight0 + bias0).relu() @ weight1 + bias1

    def _train_step(self, images: ow.Tensor, labels: ow.Tensor) -> ow.Tensor:
        weight0, bias0, weight1, bias1 = self.parameters
        self.optimizer.zero_grad()
        loss = ow.cross_entropy((images @ weight0 + bias0).relu() @ weight1 + bias1, labels)
        loss.backward()
        self.optimizer.step()
        self._scheduler.step()
        return loss

    def batches(self) -> list[list[int]]:
        """Return the indices of the images of each step of this epoch."""
        order = epoch_order(len(self.train.rows), self.seed, self.epoch)
        return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]

    def follow(self, schedule: str | None = None, lr: float | None = None) -> None:
        """Continue with another schedule or learning rate."""
        self.schedule = schedule or self.schedule
        self.lr = lr or self.lr
        self._scheduler.change(self.schedules[self.schedule], self.lr)

    def step(self, batch: Sequence[int]) -> ow.Tensor:
        """Train one step and return its loss, on the device."""
        self.rate = self.optimizer.param_groups[0]["lr"]
        self.steps += 1
        return self._step(*self.train.batch(batch))

    async def evaluate(self) -> dict[str, Any]:
        """Return the loss and the accuracy on the test images, and the misread images, the most confident first."""
        images, _ = self.test.batch(range(len(self.test.rows)))
        rows = await self._logits(images).tolist_async()
        loss, wrong = 0.0, []
        for logits, label, ink in zip(rows, self.test.labels, self.test.ink, strict=True):
            probabilities = softmax(logits)
            loss -= math.log(max(probabilities[label], 1e-38))
            best = probabilities.index(max(probabilities))
            if best != label:
                wrong.append({"ink": ink, "label": label, "predicted": best, "sure": probabilities[best]})
        wrong.sort(key=lambda image: -image["sure"])
        count = len(rows)
        return {"test_loss": loss / count, "accuracy": 1 - len(wrong) / count, "test_images": count, "wrong": wrong}

    async def recognise(self, ink: Sequence[float]) -> list[float]:
        """Return the probability of each digit for an image of 64 numbers from 0 to 16."""
        image = memoryview(self.standard.apply([value / 16 for value in ink])).cast("B").cast("f", (1, PIXELS))
        return softmax((await self._logits(image).tolist_async())[0])


def _first_parameters(device: ow.Device, seed: int) -> list[ow.Parameter]:
    """Return zero biases and normal weights, of He et al.'s variance (arXiv:1502.01852), LeCun's in the last layer."""
    ow.manual_seed(seed)
    parameters = []
    for inputs, outputs, gain in ((PIXELS, HIDDEN, 2.0), (HIDDEN, CLASSES, 1.0)):
        parameters.append(ow.Parameter(ow.randn((inputs, outputs), device=device) * math.sqrt(gain / inputs)))
        parameters.append(ow.Parameter(ow.zeros((outputs,), device=device)))
    return parameters


def typical_images(images: Images) -> list[list[int]]:
    """Return for each digit the image nearest to the mean of its images."""
    typical = []
    for digit in range(CLASSES):
        members = [ink for ink, label in zip(images.ink, images.labels, strict=True) if label == digit]
        mean = [sum(column) / len(members) for column in zip(*members, strict=True)]
        typical.append(min(members, key=lambda ink: math.dist(ink, mean)))
    return typical


class Session:
    """A training that messages of the page control."""

    def __init__(self, page: Page, data: bytes | memoryview, device: ow.Device | str | None = None) -> None:
        self.page = page
        self._data, self._device = data, device
        self.is_paused = False
        self.epochs = EPOCHS
        self.training = Training(data, device)
        self._was_reset = False  # in the present epoch
        self._is_closed = False
        self._drawn: list[int] | None = None

    def report(self, kind: str, **values: Any) -> None:
        """Send a report to the page."""
        self.page.emit(kind, json.dumps(values))

    def report_choices(self) -> None:
        """Report the available choices and the current ones."""
        choices = [{"name": entry.name, "lr": entry.lr, "common": entry in COMMON} for entry in OPTIMIZERS.values()]
        training = self.training
        self.report(
            "choices",
            optimizers=choices,
            schedules=list(training.schedules),
            optimizer=training.optimizer_name,
            lr=training.lr,
            schedule=training.schedule,
            seed=training.seed,
            train_images=len(training.train.rows),
            test_images=len(training.test.rows),
            epochs=self.epochs,
            samples=typical_images(training.test),
        )

    async def run(self) -> None:
        """Train until all epochs are done, then wait for messages; the message "close" ends the session."""
        self.report_choices()
        await self._listen()
        while not self._is_closed:
            await self._train_epoch()
            await self._listen()

    async def _train_epoch(self) -> None:
        training = self.training
        self._was_reset = False
        batches = training.batches()
        for first in range(0, len(batches), STEPS_BETWEEN):
            began = time.perf_counter()
            chosen = batches[first : first + STEPS_BETWEEN]
            losses = [training.step(batch) for batch in chosen]
            values = await asyncio.gather(*(loss.item_async() for loss in losses))
            seconds = time.perf_counter() - began
            if not all(map(math.isfinite, values)):
                self._stop_diverged()
            else:
                speed = len(values) / max(seconds, 1e-9)
                self.report("steps", step=training.steps, losses=values, lr=training.rate, steps_per_second=speed)
            await self.page.pause()
            await self._listen()
            if self._was_reset or self._is_closed:
                return
        await self._finish_epoch()

    async def _finish_epoch(self) -> None:
        training = self.training
        figures = await training.evaluate()
        if not math.isfinite(figures["test_loss"]):
            self._stop_diverged()
            return
        training.epoch += 1
        wrong = figures.pop("wrong")
        self.report(
            "epoch",
            epoch=training.epoch,
            epochs=self.epochs,
            step=training.steps,
            wrong=wrong[:WRONG_SHOWN],
            wrong_count=len(wrong),
            **figures,
        )
        if self._drawn is not None:  # the trained network may classify it otherwise
            await self._recognise(self._drawn)

    def _stop_diverged(self) -> None:
        self.is_paused = True
        training = self.training
        self.report("diverged", epoch=training.epoch + 1, lr=training.lr, optimizer=training.optimizer_name)

    async def _listen(self) -> None:
        """Handle all messages; while paused or done, wait for more."""
        while True:
            while (message := self.page.take()) is not None:
                content = json.loads(message)
                await self._handle(content["kind"], content["value"])
            is_resting = self.is_paused or self.training.epoch >= self.epochs
            if self._is_closed or not is_resting:
                return
            await self.page.wait()

    async def _handle(self, kind: str, value: Any) -> None:
        training = self.training
        if kind == "optimizer":
            training.choose_optimizer(value)
            self.report("chosen", optimizer=value, lr=training.lr)
        elif kind == "lr":
            training.follow(lr=float(value))
        elif kind == "schedule":
            training.follow(value)
        elif kind == "pause":
            self.is_paused = True
        elif kind == "resume":
            self.is_paused = False
        elif kind == "more":
            self.epochs = training.epoch + int(value)
        elif kind == "reset":
            self._restart(training.optimizer_name, training.schedule, training.seed + 1, training.lr)
        elif kind == "begin":
            self._restart(**value)
        elif kind == "close":
            self._is_closed = True
        elif kind == "draw":
            await self._recognise(drawn_image(value))
        elif kind == "sample":
            await self._recognise(value)
        else:
            raise ValueError(f"unknown message '{kind}'")

    def _restart(self, optimizer: str, schedule: str, seed: int, lr: float | None = None) -> None:
        """Restart with new weights and these choices; without `lr` with the rate of the optimizer's recipe."""
        self.training = Training(self._data, self._device, seed)
        self.training.schedule = schedule
        self.training.choose_optimizer(optimizer, lr)
        self.epochs = EPOCHS
        self.is_paused = False
        self._was_reset = True
        self.report_choices()

    async def _recognise(self, ink: list[int] | None) -> None:
        self._drawn = ink
        probabilities = None if ink is None else await self.training.recognise(ink)
        if probabilities is not None and not all(map(math.isfinite, probabilities)):
            probabilities = None  # the training has diverged
        self.report("recognised", ink=ink, probabilities=probabilities)


async def run_in_page(data: memoryview) -> None:
    """Run a session with the page in which this Python runs."""
    import page

    await Session(page, data).run()
