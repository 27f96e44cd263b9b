"""The pictures that other sites show with a link to a page: 1200 x 630, of the page itself after it has run.

`python scripts/make_cards.py [PAGE ...]` serves the site, opens each page in Chromium, and writes
demo_site/frontend/src/cards/PAGE.png, which `make bundles` puts among what is served. Run it when a page looks
otherwise. The device is whatever Chromium finds; CHROMIUM and CHROMIUM_ARGS are those of the tests.
"""

from __future__ import annotations

import io
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from chromium import ADAPTER, FLAGS, chromium_path  # noqa: E402
from demo_servers import running_server  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import Page, expect, sync_playwright  # noqa: E402

CARDS = ROOT / "demo_site" / "frontend" / "src" / "cards"
WIDTH, HEIGHT = 1200, 630
COLORS = 256
PATIENCE = 300_000  # milliseconds


class Card(NamedTuple):
    """The part of a page that is shown: an element, once `run` has brought the page so far."""

    element: str
    run: Callable[[Page], None] = lambda page: None
    address: str = ""


def _status(page: Page, state: str) -> None:
    expect(page.locator("#status")).to_have_attribute("data-state", state, timeout=PATIENCE)


def _race(page: Page) -> None:
    _status(page, "idle")
    page.locator("#speed label").last.click()
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#steps")).not_to_have_text("0", timeout=PATIENCE)
    page.wait_for_function(
        "Number(document.querySelector('#steps').textContent.replace(',', '')) > 300", timeout=PATIENCE
    )


def _checkpoints(page: Page) -> None:
    _status(page, "idle")
    page.get_by_role("button", name="Train 5 epochs").click()
    _status(page, "done")


def _bench(page: Page) -> None:
    _status(page, "idle")
    page.get_by_label("Rounds").select_option("5")
    page.get_by_role("button", name="Run all").click()
    page.locator("#matmul-rate .bar").nth(1).wait_for(timeout=PATIENCE)


def _check(page: Page) -> None:
    _status(page, "idle")
    page.get_by_role("button", name="Check", exact=True).click()
    _status(page, "done")


def _accuracy(page: Page) -> None:
    expect(page.locator("#accuracy")).not_to_have_text("–", timeout=PATIENCE)
    page.wait_for_function("parseFloat(document.querySelector('#accuracy').textContent) > 90", timeout=PATIENCE)


def _writer(page: Page) -> None:
    page.wait_for_function("document.querySelector('#latest').textContent.trim().length > 80", timeout=PATIENCE)


def _playground(page: Page) -> None:
    _status(page, "idle")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("#plot canvas").wait_for(timeout=PATIENCE)


CARDS_OF = {
    "home": Card(".map-frame", _accuracy, "./"),
    "digits": Card(".digits-board > div:last-child", _accuracy),
    "gpt": Card(".writing", _writer),
    "race": Card(".race-map canvas", _race),
    "playground": Card(".playground .code", _playground, "playground#spirals"),
    "shaders": Card("#panes", lambda page: expect(page.locator("#shader")).to_have_attribute("aria-busy", "false")),
    "bench": Card(".bench-groups", _bench),
    "compare": Card(".compare", lambda page: page.locator(".compare").first.wait_for()),
    "check": Card(".bench-groups", _check),
    "checkpoints": Card("#curve", _checkpoints),
}

COMPOSE = """
([picture, title, text]) => {
    const at = (tag, style, ...inside) => {
        const element = document.createElement(tag);
        Object.assign(element.style, style);
        element.append(...inside);
        return element;
    };
    const brand = document.querySelector(".brand").cloneNode(true);
    Object.assign(brand.style, { fontSize: "30px", padding: "0" });
    const image = at("img", { width: "100%", height: "100%", objectFit: "cover", objectPosition: "left top" });
    image.src = picture;
    document.body.replaceChildren(at("div",
        { display: "grid", gridTemplateColumns: "500px 1fr", width: "1200px", background: "var(--paper)" },
        at("div", { display: "flex", flexDirection: "column", gap: "28px", padding: "56px 40px 56px 56px" }, brand,
            at("div", { font: "700 62px/1.05 var(--sans)", fontStretch: "112%", marginTop: "auto" }, title),
            at("div", { font: "400 28px/1.35 var(--sans)", color: "var(--ink-soft)" }, text)),
        at("div", { overflow: "hidden", borderLeft: "1px solid var(--line)", height: "630px" }, image)));
    return image.decode();
}
"""


@contextmanager
def _site() -> Any:
    with TemporaryDirectory() as folder, running_server(Path(folder)) as (_, url):
        yield url.rstrip("/")


def main(names: list[str]) -> None:
    """Make the cards of these pages, or of all."""
    CARDS.mkdir(exist_ok=True)
    with _site() as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=[*FLAGS, *ADAPTER])
        page = browser.new_page(
            viewport={"width": 760, "height": 1200}, device_scale_factor=2, reduced_motion="reduce",
            color_scheme="light", bypass_csp=True,
        )  # fmt: skip
        for name in names or list(CARDS_OF):
            card = CARDS_OF[name]
            page.goto("about:blank")
            page.goto(f"{site}/{card.address or name}")
            card.run(page)
            shot = page.locator(card.element).first.screenshot(type="png")
            title = page.locator("h1").first.inner_text()
            text = page.locator("meta[name=description]").get_attribute("content")
            picture = f"data:image/png;base64,{b64encode(shot).decode()}"
            page.goto(f"{site}/shaders")  # for its fonts and colours
            page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
            page.evaluate(COMPOSE, [picture, title, text])
            whole = Image.open(io.BytesIO(page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})))
            small = whole.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS).quantize(COLORS)
            small.save(CARDS / f"{name}.png", optimize=True)
            page.set_viewport_size({"width": 760, "height": 1200})
            print(f"{name}.png: {(CARDS / f'{name}.png').stat().st_size:,} bytes", flush=True)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
