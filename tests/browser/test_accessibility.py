"""axe-core finds nothing serious on any page, in either theme, on a screen or a phone."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

AXE = Path(__file__).parent.parent.parent / "demo_site" / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = ["/", "/digits", "/gpt", "/race", "/playground", "/shaders", "/bench", "/checkpoints"]


def violations(page):
    """What axe-core calls serious or critical, with the elements."""
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html']} {node.get('failureSummary', '')}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_serious_violation(page, site, path, screenshot):
    page.emulate_media(color_scheme="light")
    page.goto(f"{site}{path}")
    page.wait_for_load_state("networkidle")
    for status in page.locator("[role=status][data-state]").all():
        expect(status).not_to_have_attribute("data-state", "busy")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        screenshot(page, f"{path.strip('/') or 'home'}-{theme}")
        assert violations(page) == [], theme


@pytest.mark.parametrize("path", PAGES)
def test_a_phone_shows_a_page_without_scrolling_sideways(page, site, path, screenshot):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site}{path}")
    page.wait_for_load_state("networkidle")
    screenshot(page, f"{path.strip('/') or 'home'}-phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []
