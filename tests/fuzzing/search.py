"""Tries programs on targets, reduces those that targets disagree on, and says what each target makes of them."""

from .choices import reduced
from .targets import KINDS, TARGETS, Batch, Program, allowed_on, targets_of, wrong_samples

SHARE = {"exact": 0.7, "real": 0.3}  # of the programs that run on all targets


def programs(count, seed, first=0, kernels=0):
    """Yield `count` programs for all targets, then `kernels` kernels; each has its own seed, and its number as name."""
    for number in range(first, first + count):
        kind = "real" if number % 10 >= 10 * SHARE["exact"] else "exact"
        yield Program.of(kind, f"{seed}:{number}", name=f"p{number}")
    for number in range(first, first + kernels):
        yield Program.of("kernel", f"{seed}:{number}", name=f"p{number}")


def batches(of):
    """A batch of each kind."""
    by_kind = {kind: [] for kind in KINDS}
    for program in of:
        by_kind[program.kind].append(program)
    return [Batch(programs) for programs in by_kind.values() if programs]


def disagreements(batch, targets):
    """The programs of a batch that targets disagree on: pairs of the program and a target that is wrong about it."""
    names = targets_of(batch.kind, targets)
    results = {name: TARGETS[name](batch) for name in names}
    reference = results[names[0]]
    result = []
    for name in names:
        for program, wrong in zip(batch.programs, wrong_samples(batch, name, results[name], reference), strict=True):
            if any(mask.any() for mask in wrong):
                result.append((program, name))
    return result


def smallest(program, target, targets, attempts=300):
    """A small program on which the target is wrong too."""
    names = list(dict.fromkeys([targets_of(program.kind, targets)[0], target]))

    def attempt(decisions):
        smaller = Program.of(program.kind, given=decisions)
        return smaller.choices if disagreements(Batch([smaller]), names) else None

    if attempt(program.choices.taken) is None:
        return program  # it takes the others of its batch
    return Program.of(program.kind, given=reduced(program.choices, attempt, attempts).taken)


def described(program, target, targets):
    """The program, and what each target makes of the first sample on which that one is wrong; of the first for None."""
    batch = Batch([program])
    names = targets_of(program.kind, targets)
    results = {name: TARGETS[name](batch) for name in names}
    leaf, sample = 0, 0
    if target is not None:
        (wrong,) = wrong_samples(batch, target, results[target], results[names[0]])
        leaf, sample = next(((leaf, mask.argmax()) for leaf, mask in enumerate(wrong) if mask.any()), (0, 0))
    lines = [batch.source, f"inputs {[leaf[sample].item() for leaf in batch.leaves]}, leaf {leaf} of the result:"]
    lines += [f"  {name}: {results[name][0][leaf][sample]!r}" for name in names]
    if program.expected:
        allowed = allowed_on(target, program, batch)[leaf]
        lines.append(f"  allowed: {allowed.low[sample]!r} to {allowed.high[sample]!r}")
    return "\n".join(lines)
