"""Under the policy "auto", operations that come again from one wait to the next are tried each way."""

import itertools
from collections import Counter

import numpy as np
from placement_problems import SLOW, known, matrix

import optirs_web as ow
from optirs_web.placing.choice import Fastest
from optirs_web.placing.trial import trial


def places_of_calls(calls, of_a_call):
    """Where the operations of each call ran, and the results; each call ends with a wait."""
    places, results = [], []
    with ow.placement("auto"):
        for _ in range(calls):
            tensors = of_a_call()
            places.append(" ".join(dict.fromkeys(one.device.name for one in tensors)))
            results.append(tensors[-1].tolist())
    return places, results


def test_auto_tries_what_comes_again_each_way_and_settles(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, gpu_product=SLOW)
    w = matrix()

    def call():
        x = w @ w
        y = x.exp()
        return x, y, y @ w

    places, results = places_of_calls(60, call)
    turns = [(place, len(list(those))) for place, those in itertools.groupby(places)]
    assert turns[0][0] == places[0] == "cpu vulkan"
    assert {place for place, _ in turns} == {"cpu vulkan", "cpu", "vulkan"}
    assert turns[-1][1] >= 60 - (1 + 2 * 3 * 7)  # a first look, and two rounds of seven turns for each of three ways
    for one in results:
        np.testing.assert_allclose(one, results[0], rtol=1e-6)


def test_auto_does_not_try_a_device_on_which_operations_would_take_far_longer(cpu, gpu):
    known(cpu, gpu, gpu_heavy=SLOW)
    places, _ = places_of_calls(30, lambda: [matrix().exp()])
    assert set(places) == {"cpu"}


def test_a_stretch_is_known_by_its_operations_and_by_what_came_before(cpu, gpu):
    known(cpu, gpu)
    stretches = Fastest.between([cpu, gpu])._stretches
    lengths = itertools.cycle([1, 2, 5])  # all begin alike

    def call():
        x = matrix()
        return [x := x.exp() for _ in range(next(lengths))]

    places_of_calls(3 * 40, call)
    assert len(stretches._known) == 3
    assert all(one.is_settled for one in stretches._known.values())


def test_what_an_operation_waits_for_does_not_end_a_stretch(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW)
    stretches = Fastest.between([cpu, gpu])._stretches
    places_of_calls(4, lambda: [y := matrix().exp(), y @ matrix()])  # both are carried over
    assert len(stretches._known) == 1


def test_a_stretch_may_begin_with_a_view(cpu, gpu):
    known(cpu, gpu)
    stretches = Fastest.between([cpu, gpu])._stretches
    x = matrix()
    places_of_calls(4, lambda: [y := x[1:], y.exp()])
    assert len(stretches._known) == 1


def settled(seconds_of):
    """The way that a trial settles for, and how many turns each has had."""
    turns_of = trial(list(seconds_of), 5)
    turns = [next(turns_of)]
    while True:
        try:
            turns.append(turns_of.send(seconds_of[turns[-1]]))
        except StopIteration as over:
            return over.value, Counter(turns)


def test_a_trial_settles_for_the_fastest_way_and_soon_leaves_a_hopeless_one():
    assert settled({"a": 1.1, "b": 1.0, "c": 1.2}) == ("b", {"a": 14, "b": 14, "c": 14})
    assert settled({"a": 1e-3, "b": 5e-3}) == ("a", {"a": 7, "b": 7})  # clear, but too short to be called hopeless
    assert settled({"a": 0.1, "b": 0.5}) == ("a", {"a": 7, "b": 2})
