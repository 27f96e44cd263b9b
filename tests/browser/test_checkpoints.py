"""A run moves from the page to the native command and back, and its curve stays that of one that never moved."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
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
    expect(checkpoints.locator("#status")).to_have_text(f"Trained at epoch {until}")


def save(checkpoints, name):
    checkpoints.get_by_label("Name of the run").fill(name)
    checkpoints.get_by_role("button", name="Save to the server").click()
    expect(checkpoints.locator("#status")).to_contain_text(f"Saved “{name}”")


def run_commands(checkpoints, folder):
    """Run what the page says to do in a terminal."""
    commands = checkpoints.locator("#commands").inner_text()
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "OPTIRS_DEVICE": "cpu",
    }
    subprocess.run(["sh", "-ec", commands], cwd=folder, env=environment, check=True)


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
    checkpoints.get_by_role("button", name="New run").click()
    expect(checkpoints.locator("#recipe")).to_have_text("sgd, seed 7, MLP 64-256-10")
    expect(checkpoints.locator("#commands")).to_contain_text("--optimizer sgd --seed 7")


def test_a_run_with_an_optimizer_from_the_long_list_moves_too(checkpoints, site, tmp_path):
    checkpoints.get_by_label("Optimizer").select_option("Adan")
    checkpoints.get_by_role("button", name="New run").click()
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
    expect(checkpoints.locator("#status")).to_contain_text("holds no run on the digits")
    checkpoints.get_by_role("button", name="Delete other").click()
    expect(checkpoints.locator("#runs tr[data-run=other]")).to_have_count(0)
