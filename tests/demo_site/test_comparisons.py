"""The page Compare shows every ratio of the published reports, lost ones as such."""

from optirs_web.benchmarks.suite import REPORTS, Report
from optirs_web.demo_site.comparisons import comparisons


def test_every_case_and_every_ratio_is_there():
    results = [result for path in REPORTS for result in Report.read(path).results]
    rows = [row for comparison in comparisons() for group in comparison.groups for row in group.rows]
    assert [row.case for row in rows] == [result.case.partition("/")[2] for result in results]
    assert sum(bool(share.text) for row in rows for share in row.shares) == sum(
        len(result.rivals) for result in results
    )
    assert sum(comparison.ratios for comparison in comparisons()) == sum(len(result.rivals) for result in results)


def test_a_bar_leans_to_the_side_of_who_is_faster():
    for comparison in comparisons():
        shares = [share for group in comparison.groups for row in group.rows for share in row.shares]
        shown = [share for share in shares if share.text]
        assert all(abs(share.power) <= 3 for share in shown)
        assert sum(share.power < 0 for share in shown) == comparison.faster
        assert all(share.reason for share in shares if not share.text)


def test_the_page_has_a_table_for_each_device(client):
    page = client.get("/compare").text
    for comparison in comparisons():
        assert f'id="{comparison.id}"' in page
        assert f'href="#{comparison.id}"' in page
    assert page.count('class="slower"') == sum(comparison.ratios - comparison.faster for comparison in comparisons())
