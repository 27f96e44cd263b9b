"""The models of `examples/` agree with torch's, train alike on every device, learn, and run from the command line."""

import doctest
import hashlib
import importlib.util
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import gpt
import numerics as numerical_cases
import numpy as np
import pytest
import resnet
import running
import vae
from conftest import BROWSER, DEVICES

import optirs_web as ow

EXAMPLES = Path(gpt.__file__).parent
DIGITS, BOOK = ow.datasets.load_digits(), ow.datasets.load_book()
ALPHABET = gpt.Alphabet(BOOK)
CODES = np.array(ALPHABET.codes(BOOK))
SEED = 3


class Case(NamedTuple):
    """A model, what it learns from, and sizes: for a run on the processor, and for a few steps everywhere."""

    module: Any
    model: str
    data: tuple[np.ndarray, ...]
    sizes: dict[str, int]
    batch: int
    small: dict[str, int]
    falls_to: float
    options: dict[str, int] = {}  # noqa: RUF012 - never changed


CASES = [
    Case(
        gpt, "GPT", (CODES,), {"block": 32, "width": 32}, 8, {"block": 16, "width": 16, "layers": 1, "heads": 2}, 0.7,
        {"characters": len(ALPHABET.characters)},
    ),
    Case(resnet, "ResNet", (DIGITS.train_images, DIGITS.train_labels), {"channels": 8}, 32, {"channels": 4}, 0.25),
    Case(vae, "VAE", (DIGITS.train_images,), {"hidden": 64}, 64, {"hidden": 16, "latent": 4}, 0.75),
]  # fmt: skip
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)


def model_of(case, device):
    ow.manual_seed(SEED)
    return getattr(case.module, case.model)(**case.options, **case.sizes, device=device)


def arrays(batch):
    return [np.array(tensor.numpy()) for tensor in batch]


@each
def test_a_run_follows_torch_from_the_same_weights_over_the_same_batches(case, open_device, torch):
    from optirs_web.benchmarks import torch_models

    steps, model = 100, model_of(case, open_device("cpu"))
    twin = getattr(torch_models, case.model)(**case.options, **case.sizes)
    twin.load_state_dict({name: torch.tensor(tensor.numpy()) for name, tensor in model.state_dict().items()})
    ow.manual_seed(SEED)
    batches = [arrays(batch) for batch in islice(case.module.batches(model, *case.data, case.batch), steps)]
    ow.manual_seed(SEED)
    ours = [loss.item() for loss in case.module.train(model, *case.data, steps, case.batch)]
    theirs, optimizer = [], twin.optimizer()
    for batch in batches:
        optimizer.zero_grad()
        loss = twin.loss(*map(torch.from_numpy, batch))
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    np.testing.assert_allclose(ours, theirs, rtol=0.01)
    assert np.mean(theirs[-10:]) < case.falls_to * theirs[0], "it learns, so that following says something"


@each
@pytest.mark.parametrize("numerics", [*DEVICES[1:], *BROWSER], indirect=True)
def test_the_first_steps_are_those_of_the_processor(case, numerics, open_device):
    call = (
        case.module.__name__,
        case.model,
        {**case.options, **case.small},
        [array[:4000] for array in case.data],
        50,
        8,
    )
    expected = numerical_cases.example_losses(*call, device=open_device("cpu"))
    np.testing.assert_allclose(numerics("example_losses", *call), expected, rtol=1e-3)


def test_a_page_needs_no_numpy_to_train(open_device):
    """Buffers of Python's own give what arrays do."""
    device, case = open_device("cpu"), CASES[0]
    call = case.module.__name__, case.model, {**case.options, **case.small}
    actual = [numerical_cases.example_losses(*call, [data], 3, 8, device) for data in (CODES, ALPHABET.codes(BOOK))]
    assert actual[0] == actual[1]


@pytest.fixture
def writer(open_device):
    case = CASES[0]
    ow.manual_seed(SEED)
    return gpt.GPT(**case.options, **case.small, device=open_device("cpu"))


def test_what_is_written_depends_on_the_seed_alone(writer):
    texts = ["".join(gpt.write(writer, ALPHABET, "No one", 20, seed=seed)) for seed in (1, 1, 2)]
    assert len(texts[0]) == 20
    assert texts[0] == texts[1] != texts[2]


def test_writing_at_a_low_temperature_takes_the_likeliest_character(writer):
    codes = np.array([[*ALPHABET.codes("\n" * 10 + "No one")]], "int32")
    likeliest = ALPHABET.characters[int(writer(ow.tensor(codes, device="cpu")).numpy()[0, -1].argmax())]
    assert next(gpt.write(writer, ALPHABET, "No one", 1, temperature=1e-3)) == likeliest


def test_each_written_character_is_one_submit_and_one_read_of_the_chances(writer):
    device = writer.head.weight.device
    text = gpt.write(writer, ALPHABET, "No one", 2)
    next(text)
    before = device.stats.copy()
    next(text)
    spent = device.stats - before
    assert (spent.replays, spent.bytes_down) == (1, 4 * len(ALPHABET.characters))


def test_a_training_step_of_the_gpt_is_one_submit_and_reads_nothing(device):
    case = CASES[0]
    ow.manual_seed(SEED)
    model = gpt.GPT(**case.options, **case.small, device=device)
    step = gpt.train_step(model, ow.optim.AdamW(model.parameters()))
    batches = gpt.batches(model, CODES, 8)
    step(*next(batches))
    batch = next(batches)
    device.synchronize()
    before = device.stats.copy()
    step(*batch)
    device.flush()
    spent = device.stats - before
    assert (spent.submits, spent.replays, spent.bytes_down) == (1, 1, 0)


@pytest.mark.slow
@each
def test_an_example_is_a_command(case, tmp_path):
    path = EXAMPLES / f"{case.module.__name__}.py"
    command = [sys.executable, str(path), "--device", "cpu", "--steps", "2", "--out", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ""})
    assert run.stdout.startswith("step     1   loss ")
    assert (tmp_path / f"{case.module.__name__}.png").read_bytes().startswith(b"\x89PNG")
    assert len(path.read_text().splitlines()) <= 150


def test_the_first_and_the_last_step_are_printed(capsys):
    losses: list[float] = []
    values = [float(number) for number in range(1, 61)]
    counts = list(running.followed(map(ow.tensor, values), losses))
    printed = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert (counts, losses) == ([1, 50, 60], values)
    assert printed == [
        ["step", "1", "loss", "1.0000"], ["step", "50", "loss", "26.0000"], ["step", "60", "loss", "55.5000"],
    ]  # fmt: skip
    assert list(running.followed(iter([ow.tensor(1.0)] * 50), [])) == [1, 50]


@pytest.mark.parametrize("steps", ["-1", "0", "1.5", "many"])
def test_steps_are_a_positive_whole_number(monkeypatch, capsys, steps):
    monkeypatch.setattr(sys, "argv", ["resnet.py", "--steps", steps])
    with pytest.raises(SystemExit):
        running.options("Train.", steps=200)
    assert f"argument --steps: '{steps}' is not a positive whole number" in capsys.readouterr().err


def test_the_book_is_the_text_that_its_script_makes():
    spec = importlib.util.spec_from_file_location("make_book", EXAMPLES.parent / "scripts" / "make_book.py")
    make_book = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_book)
    assert hashlib.sha256(BOOK.encode()).hexdigest() == make_book.SHA256
    assert make_book.compress(BOOK) == make_book.TARGET.read_bytes()
    assert doctest.testmod(importlib.import_module("optirs_web.datasets.book")).failed == 0
    assert "".join(ALPHABET.characters[code] for code in ALPHABET.codes(BOOK[:500])) == BOOK[:500]
