"""No page is wider than the window, and each leads to all others, on a phone, a tablet and a screen."""

import pytest
from playwright.sync_api import expect

from optirs_web.demo_site.addresses import PAGES

WIDTHS = [320, 375, 768, 1024, 1280]

# The page where it is wider than the window, and links and buttons that something cuts off.
CUT = """
() => {
  const cut = [...document.querySelectorAll(".masthead a, .masthead button")].filter((element) => {
    const box = element.getBoundingClientRect();
    const frame = element.closest("ul, .masthead-row").getBoundingClientRect();
    return box.width > 0 && (box.left < frame.left - 1 || box.right > Math.min(frame.right, innerWidth) + 1);
  });
  const wide = document.documentElement.scrollWidth > innerWidth ? ["the page"] : [];
  return [...wide, ...cut.map((element) => element.textContent.trim())];
}
"""


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_at_any_width(page, site, name):
    page.route("**/pyodide.asm.wasm", lambda route: None)  # the page as it is while Python loads
    page.goto(f"{site}/{PAGES[name].removeprefix('./')}")
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_count(len(PAGES))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(CUT) == [], width
