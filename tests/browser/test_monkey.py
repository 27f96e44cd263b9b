"""A monkey on every page: clicks and values at random, as a child enters them, leave no error and a page that answers.

A seed chooses the actions among what the page offers at the time. A failure shows the last of them.
"""

import random
import time

import pytest
from chromium import SLOW
from demo_servers import running_server
from playwright.sync_api import expect

PAGES = {
    "": "#run, #toggle",
    "digits": "#toggle, #reset",
    "gpt": "#toggle, #reset",
    "race": "#play, #reset",
    "playground": "#run, #stop",
    "shaders": "#left-copy",
    "bench": "#run, #stop",
    "check": "#run",
    "checkpoints": "#train, #pause",
}
"""Of each page, buttons of which one can be pressed once Python has started and its fields are valid."""

SEED = 7
ACTIONS = 150
SECONDS = 20
EARLY = 8
"""Actions while the page starts."""
TEXTS = [
    "",
    " ",
    "0",
    "-1",
    "1e9",
    "1e-300",
    "NaN",
    "ünïcödé 🙂",
    "</p>'\";",
    "a long text " * 40,
    "4294967296",
    "../a",
]

# What can be used now. Links lead away, and a file chooser waits for a person.
TARGETS = """
() => {
  const kinds = "main :is(button, select, input, textarea, summary, canvas, .editor), header button";
  const isUsable = (element) => element.checkVisibility({ visibilityProperty: true })
    && !element.matches(":disabled, [type=file], #open") && !element.closest("[inert]");
  self.targets = [...document.querySelectorAll(kinds)].filter(isUsable);
  return self.targets.length;
}
"""

POINT = """
([index, across, down]) => {
  const element = self.targets[index];
  if (!element.isConnected) return null;
  element.scrollIntoView({ block: "center", behavior: "instant" });
  const { x, y, width, height } = element.getBoundingClientRect();
  const point = [x + width * across, y + height * down];
  const label = element.labels?.[0] ?? element;
  const top = document.elementFromPoint(...point);
  if (!top || !(label.contains(top) || element.contains(top))) return null;
  const isText = element.matches(".editor, textarea, input:not([type=radio], [type=checkbox], [type=range])");
  const options = [...(element.options ?? [])].filter((option) => !option.disabled).map((option) => option.value);
  const name = element.id || element.ariaLabel || label.textContent.trim().slice(0, 40) || element.className;
  return { point, isText, options, name };
}
"""

CHOOSE = """
([index, value]) => {
  const element = self.targets[index];
  element.value = value;
  element.dispatchEvent(new Event("input", { bubbles: true }));
  element.dispatchEvent(new Event("change", { bubbles: true }));
}
"""


@pytest.fixture(scope="module")
def own_site(tmp_path_factory):
    """A demo of this module alone: the monkey saves and deletes."""
    with running_server(tmp_path_factory.mktemp("monkey")) as (_, address):
        yield address.rstrip("/")


def act(page, chance):
    """One action; its description, or None where what was chosen is gone or covered."""
    count = page.evaluate(TARGETS)
    index, across, down = chance.randrange(count), chance.uniform(0.1, 0.9), chance.uniform(0.1, 0.9)
    text, choice = chance.choice(TEXTS), chance.random()
    target = page.evaluate(POINT, [index, across, down])
    if target is None:
        return None
    if target["options"]:
        value = target["options"][int(choice * len(target["options"]))]
        page.evaluate(CHOOSE, [index, value])
        return f"choose {value!r} in {target['name']}"
    page.mouse.click(*target["point"])
    if not target["isText"]:
        return f"click {target['name']}"
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)
    page.keyboard.press(chance.choice(["Enter", "Tab"]))
    return f"enter {text[:20]!r} in {target['name']}"


def correct(page):
    """Enter what the page waits for: a valid number in each field, a racer, and a language that needs no compiler."""
    invalid = page.locator("main input:invalid:enabled").first
    while invalid.count():
        invalid.fill("1")
        page.keyboard.press("Tab")
    if page.locator("#racers").count():
        page.locator("#racers input[type=checkbox]").first.check()
    if page.locator("#left-target").count():
        page.locator("#left-target").select_option("source")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAGES, ids=lambda name: name or "home")
def test_random_actions_leave_no_error_and_a_page_that_answers(page, own_site, name):
    chance = random.Random(f"{SEED} {name}")
    alive = page.locator(f"main :is({PAGES[name]}):enabled:visible").first
    page.goto(f"{own_site}/{name}")
    actions = [act(page, chance) for _ in range(EARLY)]
    expect(alive).to_be_visible(timeout=SLOW)
    end = time.monotonic() + SECONDS
    while len(actions) < ACTIONS and time.monotonic() < end and not page.complaints:
        actions.append(act(page, chance))
    print(*filter(None, actions), sep="\n")
    correct(page)
    expect(alive).to_be_visible(timeout=SLOW)
    assert page.url.startswith(f"{own_site}/{name}"), page.url
    page.complaints = [
        text for text in page.complaints if "KeyboardInterrupt" not in text
    ]  # Pyodide logs what Stop ends
    assert page.get_by_text("Something went wrong").count() == 0
