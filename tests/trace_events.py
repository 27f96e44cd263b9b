"""Checks of files in Chromium's Trace Event Format, so that viewers open them."""

from numbers import Real

__all__ = ["check_trace", "nanoseconds", "spans_of"]

# Keys that an event needs, by its phase, with their types.
COMMON = {"ph": str, "pid": int, "tid": int}
TIMED = {**COMMON, "name": str, "cat": str, "ts": Real}
NEEDED = {
    "M": {**COMMON, "name": str, "args": dict},
    "X": {**TIMED, "dur": Real, "args": dict},
    "s": {**TIMED, "id": int},
    "f": {**TIMED, "id": int, "bp": str},
}


def check_trace(trace):
    """Events have what they need, those of a thread are nested, threads have names, and flows arrive."""
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = trace["traceEvents"]
    for event in events:
        for key, kind in NEEDED[event["ph"]].items():
            assert isinstance(event[key], kind), (key, event)
        assert event.get("dur", 0) >= 0, event
    complete = [event for event in events if event["ph"] == "X"]
    named = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    threads = {(entry["pid"], entry["tid"]) for entry in complete}
    assert threads <= named
    assert len({tid for _, tid in threads}) == len(threads), "Perfetto tells threads apart by number alone"
    for thread in threads:
        check_nesting([entry for entry in complete if (entry["pid"], entry["tid"]) == thread])
    starts, ends = ([event["id"] for event in events if event["ph"] == phase] for phase in "sf")
    assert sorted(starts) == sorted(set(ends))


def nanoseconds(event):
    """Its beginning and its end as Perfetto reads them: by cutting off what is less than a nanosecond."""
    start = int(1000.0 * event["ts"])
    return start, start + int(1000.0 * event["dur"])


def check_nesting(events):
    """Check that two events of a thread are nested, or do not overlap."""
    open_until = []
    for event in sorted(events, key=lambda event: (nanoseconds(event)[0], -nanoseconds(event)[1])):
        start, end = nanoseconds(event)
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], event
        open_until.append(end)


def spans_of(trace, kind):
    """Complete events of a category."""
    return [entry for entry in trace["traceEvents"] if entry["ph"] == "X" and entry["cat"] == kind]
