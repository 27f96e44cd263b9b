"""The decisions of a generator: drawn by a seed, or given, so that fewer and smaller ones make a smaller program."""

import random
from contextlib import contextmanager


class Choices:
    """Decisions, each a number below a bound; `taken` has those that were made.

    Args:
        seed: what they are drawn by.
        given: the decisions instead; 0 where there are no more. So 0 has to be the simplest choice everywhere.

    Attributes:
        spans: where in `taken` the decisions for each part of what is generated begin and end.
    """

    def __init__(self, seed=None, given=None):
        self._random = random.Random(seed)
        self._given = given
        self.taken, self.spans = [], []

    def below(self, bound):
        """A number from 0."""
        if self._given is None:
            value = self._random.randrange(bound)
        else:
            at = len(self.taken)
            value = min(self._given[at], bound - 1) if at < len(self._given) else 0
        self.taken.append(value)
        return value

    def chance(self, percent):
        """Return True in `percent` of a hundred cases."""
        return self.below(100) >= 100 - percent

    def pick(self, options):
        """Return one of the options, of which the simplest is the first."""
        return options[self.below(len(options))]

    @contextmanager
    def span(self):
        """Decisions that can be left out together."""
        first = len(self.taken)
        yield
        self.spans.append((first, len(self.taken)))

    def several(self, make, most):
        """A list of what `make()` returns, of half of `most` on average; each can be left out by itself."""
        made = []
        while len(made) < most:
            with self.span():
                if not self.chance(100 * most // (most + 2)):
                    break
                made.append(make())
        return made


def reduced(choices, attempt, attempts=300):
    """The choices of a smaller program: fewer decisions, or as many and smaller ones.

    Parts are left out, or become what 0 stands for, the largest first; then each decision is made smaller.

    Args:
        choices: those of the program to begin with.
        attempt: from decisions to the choices of the program that they make if it is one to be kept, otherwise None.
        attempts: how often that is called at most.
    """
    best, known = choices, {tuple(_without_end(choices.taken))}

    def is_kept(candidate):
        nonlocal best
        candidate = _without_end(candidate)
        if tuple(candidate) in known or len(known) > attempts:
            return False
        known.add(tuple(candidate))
        result = attempt(candidate)
        if result is None or _size(result) >= _size(best):
            return False
        best = result
        return True

    before = None
    while before is not best and len(known) <= attempts:
        before = best
        at = 0
        while at < len(best.spans):
            first, end = sorted(best.spans, key=lambda span: span[0] - span[1])[at]
            rest = best.taken[end:]
            if not any(is_kept([*best.taken[:first], *kept, *rest]) for kept in ([], [0], [0] * (end - first))):
                at += 1
        for at in range(len(best.taken)):
            while at < len(best.taken) and best.taken[at]:
                smaller = {0, best.taken[at] // 2, best.taken[at] - 1}
                if not any(is_kept([*best.taken[:at], choice, *best.taken[at + 1 :]]) for choice in sorted(smaller)):
                    break
    return best


def _size(choices):
    decisions = _without_end(choices.taken)
    return len(decisions), decisions


def _without_end(decisions):
    """Without the zeros at the end, which are there anyway."""
    end = len(decisions)
    while end and not decisions[end - 1]:
        end -= 1
    return list(decisions[:end])
