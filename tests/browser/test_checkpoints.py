"""A run moves from the page to the native command and back, and its curve stays that of one that never moved."""

import os
import re
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
import safetensors.numpy
from playwright.sync_api import expect

import optirs_web as ow
from optirs_web.training import Config, DigitsTraining


@pytest.fixture
def checkpoints(page, site):
    """The page with a new run."""
    page.goto(f"{site}/checkpoints")
    expect(page.locator("#status")).to_have_text("Ready")
    return page


def train(checkpoints, until):
    checkpoints.get_by_role("button", name="Train 5 epochs").click()
    expect(checkpoints.locator("#status")).to_have_text(f"Trained to epoch {until}")


def save(checkpoints, name):
    checkpoints.get_by_label("Run name").fill(name)
    checkpoints.get_by_role("button", name="Save", exact=True).click()
    expect(checkpoints.locator("#status")).to_contain_text(f"Saved “{name}”")


def run_commands(checkpoints, folder):
    """Paste what the page says into a fresh shell, in a folder with the `.venv` of a clone."""
    commands = checkpoints.locator("#commands").inner_text()
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(sys.prefix)
    environment = {"PATH": os.defpath, "HOME": str(folder), "OPTIRS_DEVICE": "cpu"}
    subprocess.run(["sh", "-ec", commands], cwd=folder, env=environment, check=True)


def drop(page, name, content):
    """Drop a file on the page."""
    page.evaluate(
        """([name, numbers]) => {
            const files = new DataTransfer();
            files.items.add(new File([new Uint8Array(numbers)], name));
            for (const kind of ["dragover", "drop"]) {
                document.querySelector("main").dispatchEvent(
                    new DragEvent(kind, { dataTransfer: files, bubbles: true, cancelable: true }));
            }
        }""",
        [name, list(content)],
    )


def choose(page, name, content):
    """Choose a file by the button."""
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a file").click()
    chooser.value.set_files({"name": name, "mimeType": "application/octet-stream", "buffer": content})


@pytest.fixture(scope="session")
def native_run():
    """A native run after an epoch."""
    run = DigitsTraining(Config(device="cpu", epochs=1, hidden=(16,)))
    list(run.run())
    return run


def content_of(run, **config):
    """Its checkpoint, with these entries of the config changed."""
    extra = {"config": asdict(run.config) | config, "history": [list(epoch) for epoch in run.history]}
    return ow.dump_checkpoint(run.parameters, run.optimizer, extra)


def assert_alive(checkpoints):
    """Every button can be pressed, and the page trains."""
    for name in ("Train 5 epochs", "Start a new run", "Save", "Download file", "Open a file…"):
        expect(checkpoints.get_by_role("button", name=name, exact=True)).to_be_enabled()


def test_a_run_moves_to_the_native_command_and_back(checkpoints, site, tmp_path, screenshot):
    train(checkpoints, 5)
    save(checkpoints, "moving")
    run_commands(checkpoints, tmp_path)
    checkpoints.get_by_role("button", name="Refresh").click()
    row = checkpoints.locator("#runs tr[data-run=moving]")
    expect(row).to_contain_text("10")
    row.get_by_role("button", name="Load").click()
    expect(checkpoints.locator("#status")).to_have_text("Loaded “moving” at epoch 10")
    train(checkpoints, 15)
    save(checkpoints, "moving")
    screenshot(checkpoints, "checkpoints")

    moved = ow.checkpoint_extra(checkpoints.request.get(f"{site}/api/runs/moving/checkpoint").body())["history"]
    whole = DigitsTraining(Config(device="cpu", epochs=15))
    list(whole.run())
    for mine, theirs in zip(moved, whole.history, strict=True):
        for a, b in ((mine[2], theirs.train_loss), (mine[3], theirs.test_loss)):
            assert abs(a - b) <= 1e-3 * max(b, 0.05), f"epoch {mine[0]}"
    assert moved[-1][4] >= 0.97
    expect(checkpoints.locator("#accuracy")).to_have_text(f"{100 * moved[-1][4]:.2f}%")


def test_another_optimizer_and_seed_make_another_run(checkpoints):
    checkpoints.get_by_label("Optimizer").select_option("sgd")
    checkpoints.get_by_label("Seed").fill("7")
    checkpoints.get_by_role("button", name="Start a new run").click()
    expect(checkpoints.locator("#recipe")).to_have_text("sgd, seed 7, MLP 64-256-10")
    expect(checkpoints.locator("#commands")).to_contain_text("--optimizer sgd --seed 7")


def test_a_run_with_an_optimizer_from_the_long_list_moves_too(checkpoints, site, tmp_path):
    checkpoints.get_by_label("Optimizer").select_option("Adan")
    checkpoints.get_by_role("button", name="Start a new run").click()
    expect(checkpoints.locator("#recipe")).to_contain_text("adan, ")
    train(checkpoints, 5)
    save(checkpoints, "adan")
    run_commands(checkpoints, tmp_path)
    checkpoints.get_by_role("button", name="Refresh").click()
    checkpoints.get_by_role("button", name="Load adan").click()
    expect(checkpoints.locator("#status")).to_have_text("Loaded “adan” at epoch 10")
    train(checkpoints, 15)
    save(checkpoints, "adan")
    content = checkpoints.request.get(f"{site}/api/runs/adan/checkpoint").body()
    figures = ow.checkpoint_extra(content)["history"]
    assert [epoch for epoch, *_ in figures] == list(range(1, 16))
    assert figures[-1][4] >= 0.95


def test_a_run_of_something_else_is_refused_in_words(checkpoints, site, open_device):
    other = ow.dump_checkpoint({"w": ow.Parameter([1.0], device=open_device("cpu"))})
    token = checkpoints.request.get(f"{site}/api/session", headers={"Sec-Fetch-Site": "same-origin"}).json()["token"]
    put = checkpoints.request.put(
        f"{site}/api/runs/other/checkpoint",
        data=other,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"},
    )
    assert put.ok
    checkpoints.get_by_role("button", name="Refresh").click()
    checkpoints.get_by_role("button", name="Load other").click()
    expect(checkpoints.locator("#status")).to_have_text("This is not a checkpoint of a run on the digits.")
    checkpoints.get_by_role("button", name="Delete other").click()
    expect(checkpoints.locator("#runs tr[data-run=other]")).to_have_count(0)


@pytest.mark.parametrize("way", [choose, drop])
def test_a_file_is_opened_and_continued(checkpoints, native_run, way):
    way(checkpoints, "native.safetensors", content_of(native_run))
    expect(checkpoints.locator("#status")).to_have_text("Loaded “native.safetensors” at epoch 1")
    expect(checkpoints.locator("#recipe")).to_have_text("adamw, seed 0, MLP 64-16-10")
    train(checkpoints, 6)


def test_a_downloaded_file_is_opened_again(checkpoints):
    train(checkpoints, 5)
    with checkpoints.expect_download() as download:
        checkpoints.get_by_role("button", name="Download file").click()
    loss = checkpoints.locator("#test-loss").inner_text()
    checkpoints.get_by_role("button", name="Start a new run").click()
    expect(checkpoints.locator("#epoch")).to_have_text("0")
    with checkpoints.expect_file_chooser() as chooser:
        checkpoints.get_by_role("button", name="Open a file").click()
    chooser.value.set_files(download.value.path())
    expect(checkpoints.locator("#epoch")).to_have_text("5")
    expect(checkpoints.locator("#test-loss")).to_have_text(loss)


def test_foreign_and_damaged_files_are_refused_in_a_sentence_and_the_page_stays_alive(checkpoints, native_run):
    good = content_of(native_run)
    torchs = safetensors.numpy.save({"fc1.weight": np.ones((4, 4), "float32")}, {"format": "pt"})
    wide = content_of(native_run, hidden=[10**9])
    start = 8 + int.from_bytes(good[:8], "little")
    overwritten = good[:start] + bytes(64) + good[start + 64 :]
    files = [
        ("overwritten.safetensors", overwritten, "The checkpoint is damaged or was edited: its content does not match"),
        ("empty.safetensors", b"", "“empty.safetensors” is empty."),
        ("page.safetensors", b"<!doctype html><title>404</title>", "Not a safetensors file: this is a web page"),
        ("model.pt", b"PK\x03\x04" + bytes(100), "Not a safetensors file: this is a ZIP archive"),
        ("noise.safetensors", bytes(range(256)), "The checkpoint is not a safetensors file, or is cut off"),
        ("half.safetensors", good[: len(good) // 2], "The checkpoint is damaged"),
        ("torch.safetensors", torchs, "The checkpoint is a safetensors file, but not a checkpoint of optirs-web."),
        (
            "wide.safetensors",
            wide,
            "This is not a checkpoint of a run on the digits: hidden must be at most 8 widths",
        ),
    ]
    for name, content, message in files:
        drop(checkpoints, name, content)
        expect(checkpoints.locator("#status"), name).to_contain_text(message)
        expect(checkpoints.locator("#status"), name).to_have_text(re.compile(r"[.…)’”]$"))
        assert_alive(checkpoints)
    train(checkpoints, 5)


def test_a_file_of_two_gigabytes_is_refused_unread(checkpoints):
    checkpoints.evaluate(
        """() => {
            const file = new File([], "huge.safetensors");
            Object.defineProperty(file, "size", { value: 2 ** 31 });
            file.arrayBuffer = () => { throw new Error("read"); };
            const event = new DragEvent("drop", { bubbles: true, cancelable: true });
            Object.defineProperty(event, "dataTransfer", { value: { types: ["Files"], files: [file] } });
            document.body.dispatchEvent(event);
        }"""
    )
    expect(checkpoints.locator("#status")).to_have_text(
        "“huge.safetensors” is 2,048 MiB; checkpoints of this run are at most 64 MiB."
    )
    assert_alive(checkpoints)


def epoch_of(checkpoints, name):
    return checkpoints.locator(f"#runs tr[data-run={name}] td").nth(1)


def test_deleting_and_overwriting_can_be_undone(checkpoints, site):
    name = "undone"
    train(checkpoints, 5)
    save(checkpoints, name)
    before = checkpoints.request.get(f"{site}/api/runs/{name}/checkpoint").body()
    train(checkpoints, 10)
    save(checkpoints, name)
    expect(epoch_of(checkpoints, name)).to_have_text("10")
    toast = checkpoints.locator(".toast")
    expect(toast).to_contain_text(f"Overwrote “{name}”, which held epoch 5 of AdamW")
    toast.get_by_role("button", name="Undo").click()
    expect(epoch_of(checkpoints, name)).to_have_text("5")
    assert checkpoints.request.get(f"{site}/api/runs/{name}/checkpoint").body() == before

    checkpoints.get_by_role("button", name=f"Delete {name}").dblclick()  # as once
    expect(checkpoints.locator(f"#runs tr[data-run={name}]")).to_have_count(0)
    assert checkpoints.request.get(f"{site}/api/runs/{name}/checkpoint").status == 404
    toast.filter(has_text="was deleted").get_by_role("button", name="Undo").click()
    expect(epoch_of(checkpoints, name)).to_have_text("5")
    assert checkpoints.request.get(f"{site}/api/runs/{name}/checkpoint").body() == before


def test_epochs_that_were_not_saved_come_back(checkpoints):
    train(checkpoints, 5)
    loss = checkpoints.locator("#test-loss").inner_text()
    checkpoints.get_by_role("button", name="Start a new run").click()
    expect(checkpoints.locator("#epoch")).to_have_text("0")
    toast = checkpoints.locator(".toast", has_text="5 unsaved epochs")
    toast.get_by_role("button", name="Undo").click()
    expect(checkpoints.locator("#epoch")).to_have_text("5")
    expect(checkpoints.locator("#test-loss")).to_have_text(loss)
    train(checkpoints, 10)


def test_a_seed_that_is_none_is_said_at_the_field(checkpoints):
    field = checkpoints.get_by_label("Seed")
    for seed in ("1.5", "-1", "4294967296", ""):
        field.fill(seed)
        checkpoints.get_by_role("button", name="Start a new run").click()
        expect(field).to_be_focused()
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description("Enter a whole number from 0 to 4,294,967,295")
        expect(checkpoints.locator("#recipe")).to_contain_text("seed 0")
        field.fill("7")
        expect(checkpoints.locator("#seed-error")).to_be_hidden()
    checkpoints.get_by_role("button", name="Start a new run").click()
    expect(checkpoints.locator("#recipe")).to_contain_text("seed 7")


def test_a_loss_that_is_no_number_stops_with_a_sentence(checkpoints, native_run):
    drop(checkpoints, "steep.safetensors", content_of(native_run, lr=1e30))
    expect(checkpoints.locator("#epoch")).to_have_text("1")
    checkpoints.get_by_role("button", name="Train 5 epochs").click()
    expect(checkpoints.locator("#status")).to_have_text(
        "The loss became NaN or infinite in epoch 2: this run cannot continue; load an earlier checkpoint or start a "
        "new run."
    )
    for name in ("Train 5 epochs", "Save", "Download file"):  # there is nothing worth keeping
        expect(checkpoints.get_by_role("button", name=name, exact=True)).to_be_disabled()
    checkpoints.get_by_role("button", name="Start a new run").click()
    train(checkpoints, 5)


def test_a_server_that_is_gone_is_said_and_the_page_stays_alive(checkpoints):
    checkpoints.route("**/api/runs**", lambda route: route.abort())
    checkpoints.get_by_role("button", name="Save", exact=True).click()
    expect(checkpoints.locator("#status")).to_have_attribute("data-state", "failed")
    checkpoints.complaints.clear()  # of the request
    assert_alive(checkpoints)
    train(checkpoints, 5)


def test_the_page_fits_and_takes_files_that_are_held_over_it(checkpoints, fits):
    fits(checkpoints, "checkpoints")


def test_a_server_that_cannot_be_reached_is_said_to_be(checkpoints):
    checkpoints.route("**/api/**", lambda route: route.abort())
    checkpoints.get_by_role("button", name="Refresh").click()
    sentence = "The server cannot be reached: you may be offline, or it has stopped."
    expect(checkpoints.locator("#status")).to_have_text(sentence)
    checkpoints.complaints.clear()  # the request that failed
