"""The tests' browser reports an error when Chromium's process of a page is gone."""

import pytest
from chromium import chromium_context


@pytest.fixture(scope="module")
def shared(browser):
    with chromium_context(browser) as page:
        yield page


def test_a_test_whose_page_crashes_is_run_again_in_a_new_page(shared, request):
    from playwright.sync_api import Error

    if request.node.execution_count == 1:
        with pytest.raises(Error):
            shared.goto("chrome://crash")
    assert shared.evaluate("6 * 7") == 42
    assert request.node.execution_count == 2
