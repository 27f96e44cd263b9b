"""Measuring: what is called, how often, for how long, and what the times come to."""

import math
import statistics
from time import sleep

import pytest

from optirs_web.runtime.driving import drive
from optirs_web.runtime.measure import STEADY, Plan, Times, fastest, rotated, rounds, spread, timed


def measured(seconds, plan, **options):
    """The times, and what was called, where each call of a name takes the next of its seconds, the last for ever."""
    requested, inputs = [], {name: list(own) for name, own in seconds.items()}

    def answer(request):
        requested.append(request)
        own = inputs[request[0]]
        return own.pop(0) if len(own) > 1 else own[0]

    return drive(rounds(list(seconds), plan, **options), answer), requested


def test_the_first_call_compiles_and_the_least_of_the_others_that_warm_up_says_how_often_to_repeat():
    times, requested = measured({"a": [9.0, 2e-3, 1e-3, 1e-3]}, Plan(warm_up=3, sample=5e-3, fewest=2))
    assert requested == [("a", 1)] * 3 + [("a", 5)] * 2
    assert times == {"a": [1e-3] * 2}


@pytest.mark.parametrize(
    ("seconds", "plan", "warm_ups", "repeats"),
    [
        ([1.0, 0.1], Plan(warm_up=2, warming=0.35, sample=1.0, long=1.0), 4, 10),
        ([1.0, 0.1], Plan(warm_up=5, sample=1.0, long=0.05), 2, 10),
        ([1.0, 1e-9], Plan(repeats=64), 2, 64),
        ([1.0, 0.0], Plan(repeats=64), 2, 64),
        ([1.0, 1.0], Plan(), 2, 1),
    ],
)
def test_short_calls_warm_up_and_repeat_more_often_than_long_ones(seconds, plan, warm_ups, repeats):
    _, requested = measured({"a": seconds}, plan)
    assert requested[warm_ups:] == [("a", repeats)] * plan.fewest


def test_names_alternate_in_rounds_that_begin_with_another_each():
    _, requested = measured(
        {"a": [1.0], "b": [1.0]}, Plan(warm_up=1, samples=2, settling=1, fewest=2, most=2, at_most=9)
    )
    first, second = requested[:6], requested[6:]
    assert [name for name, _ in first] == ["a"] * 3 + ["b"] * 3
    assert [name for name, _ in second] == ["b"] * 3 + ["a"] * 3


def test_rounds_go_on_until_times_are_steady_or_there_are_enough():
    def count(own, **options):
        return len(measured({"a": [9.0, 1e-3, *own]}, Plan(fewest=3, most=9, at_most=99), **options)[0]["a"])

    assert count([1.0]) == 3
    assert count([1.0, 2.0, 1.0, 1.0, 1.0]) == 5
    assert count([1.0, 2.0] * 9) == 9
    assert count([1.0], are_enough=lambda times: len(times["a"]) == 7) == 7


def test_when_time_is_over_the_fewest_rounds_are_enough():
    times, _ = measured({"a": [1.0, 2.0] * 9}, Plan(fewest=3, most=9, at_most=3.5))
    assert len(times["a"]) == 3


def test_what_is_hopeless_is_not_measured_again_and_ends_the_rounds_where_one_is_left():
    plan = Plan(samples=5, fewest=2, most=2, at_most=9, hopeless=2.0, long=0.02)
    times, _ = measured({"a": [1.1], "b": [1.0], "c": [1.2]}, plan)
    assert {name: len(own) for name, own in times.items()} == {"a": 10, "b": 10, "c": 10}
    assert fastest(times) == "b"
    times, _ = measured({"a": [1e-3], "b": [5e-3]}, plan)  # short enough to be looked at for a round
    assert {name: len(own) for name, own in times.items()} == {"a": 5, "b": 5}
    times, requested = measured({"a": [0.1], "b": [0.5]}, plan)
    assert {name: len(own) for name, own in times.items()} == {"a": 5, "b": 1}
    assert requested[-2:] == [("b", 1)] * 2


def test_what_cannot_be_measured_is_the_slowest():
    times, _ = measured({"a": [math.inf], "b": [1.0]}, Plan(samples=2, fewest=2, most=2))
    assert fastest(times) == "b"
    assert times["a"].median == math.inf


@pytest.mark.parametrize("values", [[1.0, 3.0], [5.0, 1.0, 2.0], [4.0, 4.0, 1.0, 9.0, 2.0], [0.1] * 4])
def test_median_and_spread_are_those_of_the_standard_library(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    assert Times(values).median == pytest.approx(statistics.median(values))
    assert Times(values).spread == spread(values) == pytest.approx((high - low) / middle)


def test_one_time_has_no_spread():
    assert spread([3.0]) == 0.0


def test_calls_of_the_host_are_timed_with_the_wait_after_them():
    waits = []
    times = timed({"none": (lambda: None, None), "slept": (lambda: None, lambda: waits.append(sleep(0.02)))})
    assert times["slept"].median >= 0.02 / 64 > times["none"].median
    assert len(waits) == len(times["slept"]) + 2


def test_every_name_comes_first_in_turn():
    assert [rotated("abc", number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert STEADY == 0.1
