"""axe-core finds nothing serious on any page, in either theme, on a screen or a phone."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

AXE = Path(__file__).parent.parent.parent / "demo_site" / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = ["/", "/digits", "/gpt", "/race", "/playground", "/shaders", "/bench", "/check", "/checkpoints"]


def violations(page):
    """Return the violations that axe-core rates as serious or critical, with their elements."""
    page.evaluate(AXE.read_text("utf-8"))
    result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [
        f"{entry['id']} ({entry['impact']}): {node['html']} {node.get('failureSummary', '')}"
        for entry in result
        if entry["impact"] in ("serious", "critical")
        for node in entry["nodes"]
    ]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_serious_violation_and_a_phone_does_not_scroll_sideways(page, site, path, screenshot):
    name = path.strip("/") or "home"
    screen = page.viewport_size
    # Halfway through a transition, a button that is just enabled has the colors of neither state.
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site}{path}")
    page.wait_for_load_state("networkidle")
    screenshot(page, f"{name}-phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []

    page.set_viewport_size(screen)
    for status in page.locator("[role=status][data-state]").all():
        expect(status).not_to_have_attribute("data-state", "busy")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        screenshot(page, f"{name}-{theme}")
        assert violations(page) == [], theme
