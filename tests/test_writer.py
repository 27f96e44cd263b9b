"""The program of the page that writes, run natively: on the device `cpu`, with a page that is scripted."""

import asyncio
import itertools
import math
from array import array
from collections import Counter

import gpt
import numpy as np
import pytest
from test_page_programs import ScriptedPage, imported_by

import optirs_web as ow

BOOK = ow.datasets.load_book()[:20_000]


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    monkeypatch.setenv("OPTIRS_DEVICE", "cpu")


@pytest.fixture
def writer(monkeypatch):
    """The module, with a small model, short texts, and time for them."""
    module = imported_by(monkeypatch)("writer")
    monkeypatch.setitem(module.SIZES, "medium", module.SIZES["small"])
    for name, value in {"SAMPLE": 40, "ANSWER": 60, "AT_THE_PEN": math.inf}.items():
        monkeypatch.setattr(module, name, value)
    return module


def run_session(writer, act):
    """A session with a visitor; it ends with the message "close"."""
    page = ScriptedPage(act)
    session = writer.Session(page, BOOK)
    asyncio.run(session.run())
    return page, session


def after(steps, *messages, then=(("close", None),)):
    """A visitor who says something at the first report, and after so many steps something else."""

    def act(kind, report):
        if kind == "choices" and not act.begun:
            act.begun = True
            return list(messages)
        return list(then) if kind == "steps" and report["step"] >= steps else []

    act.begun = False
    return act


def test_it_learns_writes_as_it_learns_and_continues_a_visitors_words(writer):
    page, session = run_session(writer, after(45, ("prompt", {"text": "Catherine ", "temperature": 0.8})))
    losses = [entry["loss"] for entry in page.all("held_out")]
    assert losses[0] > 4
    assert losses[-1] < 3.2
    steps = [loss for report in page.all("steps") for loss in report["losses"]]
    assert len(steps) == session.training.steps

    samples = [entry for entry in page.all("written") if entry["name"] == "sample" and entry["done"]]
    assert [sample["number"] for sample in samples] == list(range(1, len(samples) + 1))
    assert len({sample["text"] for sample in samples}) == len(samples) >= 2
    assert {len(sample["text"]) for sample in samples} == {writer.SAMPLE}
    (answer,) = (entry for entry in page.all("written") if entry["name"] == "answer" and entry["done"])
    assert len(answer["text"]) == writer.ANSWER
    assert set(answer["text"]) <= set(BOOK)


def test_who_pauses_it_can_still_ask(writer):
    def act(kind, report):
        if kind == "steps":
            return [("pause", None), ("prompt", {"text": "No one", "temperature": 0.5})] * (report["step"] == 1)
        return [("close", None)] if kind == "written" and report["name"] == "answer" and report["done"] else []

    page, session = run_session(writer, act)
    assert session.training.steps == page.all("steps")[-1]["step"] == 1


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("prompt", {"text": "", "temperature": 1}, "The prompt must have 1 to 500 characters, not 0"),
        ("prompt", {"text": "a" * 501, "temperature": 1}, "not 501"),
        (
            "prompt",
            {"text": "naïve \x00", "temperature": 1},
            "does not contain these characters: U+0000 ï",
        ),
        ("text", "", "at least two distinct characters"),
        ("text", "\r\n\n\r" * 1000, "at least two distinct characters"),
        ("text", "long" * 250_001, "has 1,000,004 characters; this page trains on at most 1,000,000"),
        ("text", 3, "AttributeError"),
        ("lr", "nan", "0 or greater, not nan"),
        ("lr", -1, "0 or greater, not -1"),
        ("optimizer", "Newton", "Newton"),
        ("size", "huge", "KeyError: 'huge'"),
        ("dance", None, "unknown message 'dance'"),
    ],
)
def test_what_cannot_be_used_is_refused_and_training_goes_on(writer, kind, value, words):
    page, session = run_session(writer, after(2, (kind, value)))
    ((refused),) = page.all("refused")
    assert refused["what"] == kind
    assert words in refused["message"]
    assert session.training.steps >= 2
    assert session.text is session.book


def run_with_text(writer, text):
    """A session in which the visitor gives a text of their own, until a sample of it is written."""
    texts = []

    def act(kind, report):
        if kind == "choices":
            texts.append(report["text"])
            return [("text", text)] if len(texts) == 1 else []
        return [("close", None)] if kind == "written" and report["done"] and len(texts) == 2 else []

    page, session = run_session(writer, act)
    return page, session, texts[-1]


def test_another_text_is_learned_from_new_weights(writer):
    text = "<b>one</b>\r\ntwo\r" * 200
    page, session, shown = run_with_text(writer, text)
    assert page.all("begun") == [{}]
    assert shown == {"characters": 3000, "different": 10, "replaced": 0, "is_held_out": True, "is_book": False}
    assert session.training.alphabet.characters == "".join(sorted(set(text) - {"\r"}))
    assert session.training.seed == 1


@pytest.mark.parametrize(
    ("text", "is_held_out"),
    [
        ("one long line " * 1000, True),
        ("日本語の文章。" * 600, True),
        ("👩‍👩‍👧‍👦🎉" * 500, True),
        ("ab", False),
        ("\x00\udcff", False),
        ("to be or not to be", False),
        ("".join(map(chr, range(0x4E00, 0x4E00 + 3000))), True),
    ],
    ids=["no line break", "Japanese", "emoji", "two characters", "no characters of any script", "short", "3,000 kinds"],
)
def test_any_text_of_two_different_characters_trains_and_is_written(writer, text, is_held_out):
    page, session, shown = run_with_text(writer, text)
    assert page.all("refused") == page.all("failed") == page.all("diverged") == []
    assert shown["is_held_out"] is is_held_out
    assert shown["different"] == len(set(text))
    assert session.training.steps > 0
    assert set(page.all("written")[-1]["text"]) <= set(text)


def test_the_rarest_characters_become_one_where_a_text_has_too_many(writer, monkeypatch):
    monkeypatch.setattr(writer, "MOST_CHARACTERS", 5)
    _, session, shown = run_with_text(writer, "eeeeedddddccccc" * 100 + "bbbbb" + "avwxyz")
    assert session.training.alphabet.characters == "bcde" + writer.RARE
    assert (shown["different"], shown["replaced"]) == (5, 6)


def test_what_raises_while_it_trains_is_said_and_leaves_a_session_that_can_start_over(writer, monkeypatch):
    step, restarts = writer.Training.step, []

    def failing_once(training):
        if training.seed == 0:
            raise RuntimeError("no luck")
        return step(training)

    def act(kind, report):
        if kind == "failed":
            restarts.append(report["message"])
            return [("reset", None)]
        return [("close", None)] if kind == "steps" else []

    monkeypatch.setattr(writer.Training, "step", failing_once)
    _, session = run_session(writer, act)
    assert restarts == ["RuntimeError: no luck"]
    assert session.training.steps > 0


def test_a_lost_device_ends_the_session(writer, monkeypatch):
    def lost(training):
        raise ow.errors.DeviceLostError("gone")

    monkeypatch.setattr(writer.Training, "step", lost)
    with pytest.raises(ow.errors.DeviceLostError):
        run_session(writer, lambda kind, report: [])


def test_optimizer_and_rate_change_while_it_runs(writer):
    page, session = run_session(writer, after(3, ("optimizer", "Lion"), ("lr", 0.0025)))
    chosen = page.all("choices")[-1]
    assert (chosen["optimizer"], session.training.optimizer.param_groups[0]["lr"]) == ("Lion", 0.0025)
    assert "ow.optim.Lion(\n    model.parameters(), lr=0.0025" in page.all("lines")[-1]["lines"]
    assert isinstance(session.training.optimizer, ow.optim.Lion)


def test_a_diverged_training_says_so_and_stops(writer):
    def act(kind, report):
        if kind == "choices" and report["optimizer"] == "AdamW":
            return [("optimizer", "SGD"), ("lr", 1e30)]
        return [("prompt", {"text": "No", "temperature": 1}), ("close", None)] if kind == "diverged" else []

    page, session = run_session(writer, act)
    ((diverged),) = page.all("diverged")
    assert (diverged["optimizer"], diverged["lr"]) == ("SGD", 1e30)
    assert session.is_paused
    assert "Start over first" in page.all("refused")[0]["message"]


def test_the_lines_on_the_page_are_a_program_that_trains(writer, monkeypatch):
    training = writer.Training(writer.Text.of(BOOK), "small")
    batches = gpt.batches
    monkeypatch.setattr(gpt, "batches", lambda *given: itertools.islice(batches(*given), 3))
    names = {"book": BOOK}
    exec(training.lines(), names)
    assert names["loss"].item() < 4.3
    assert len(training.lines().splitlines()) <= 13


@pytest.mark.parametrize("size", ["small", "large"])
def test_the_number_of_weights_is_that_of_the_model(writer, size):
    size_ = writer.SIZES[size]
    model = gpt.GPT(73, *size_[:4], device="cpu")
    assert size_.weights(73) == sum(weight.size for weight in model.parameters())


# The pen.


def written(pen, codes, temperature, characters):
    pen.begin("it", memoryview(array("i", codes)), temperature)
    result = []
    while len(result) < characters:
        result = asyncio.run(pen.write("it"))
    return result


def test_the_pen_writes_what_the_example_writes_where_nothing_is_left_to_chance(writer, monkeypatch):
    training = writer.Training(writer.Text.of(BOOK), "small")
    for _ in range(10):
        training.step()
    prompt = "No one who had"
    actual = written(training.pen, training.alphabet.codes(prompt), 1e-4, 40)
    text = "".join(training.alphabet.characters[code] for code in actual)
    assert text == "".join(gpt.write(training.model, training.alphabet, prompt, 40, temperature=1e-4))


def test_several_characters_are_one_replay_and_one_read(writer, monkeypatch):
    training = writer.Training(writer.Text.of(BOOK), "small")
    written(training.pen, [1], 1.0, 8)
    device = ow.device()
    before = device.stats.copy()
    asyncio.run(training.pen.write("it"))
    spent = device.stats - before
    assert (spent.replays, spent.bytes_down) == (1, 4 * training.size.block)


class Constant:
    """A model whose logits are always the same."""

    def __init__(self, logits, block):
        self.logits = ow.tensor(np.tile(np.float32(logits), (1, block, 1)))
        self.head = type("Head", (), {"weight": self.logits})

    def __call__(self, codes):
        return self.logits * 1.0


def test_characters_are_drawn_by_their_softmax_at_the_temperature(writer, monkeypatch):
    pen = imported_by(monkeypatch)("pen")
    ow.manual_seed(0)
    logits, temperature, count = np.array([0.0, 1.0, 2.0]), 2.0, 4000
    actual = Counter(written(pen.Pen(Constant(logits, 16), 16), [0], temperature, count))
    expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    for code, share in enumerate(expected):
        assert abs(actual[code] / count - share) < 5 * math.sqrt(share * (1 - share) / count)
