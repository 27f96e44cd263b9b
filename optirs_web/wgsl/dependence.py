"""Which inputs of a map function each of its outputs depends on, and which state slots a rule needs at all.

A flag that the linker has folded away leaves no dependence behind: with ``amsgrad`` false nothing that
`param` becomes depends on ``state.max_exp_avg_sq``, so that slot is neither allocated nor bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .straight import Straight, leaf_names
from .straighten import straighten
from .syntax import Binary, Call, Expression, Function, Member, Module, Name, Unary
from .types import Struct

__all__ = ["RULE_PARTS", "dependencies", "live_slots", "passed_through"]

RULE_PARTS = ("update", "prepare", "adapt", "measure", "train", "eval", "perturb", "restore")
"""The parts of a rule that run at every step or on call and may read state. `init` only writes it."""

_Leaves = dict[str, frozenset[str]]
"""For each scalar leaf of a value the parameter leaves that it depends on. A scalar's only leaf is ""."""


def dependencies(module: Module, function: str) -> dict[str, frozenset[str]]:
    """For each leaf of the function's result the leaves of its parameters that it depends on.

    Calls are followed. A value that is passed through depends on itself:
    ``{"param": {"param", "grad", "h.lr"}, "state.step": {"state.step"}}``. A scalar result is the leaf "".

    Raises:
        ShaderError: the function is not a map function.
    """
    return _Reader(straighten(module, [function])).function(function)


def live_slots(module: Module) -> tuple[str, ...]:
    """The leaves of a rule's `state` that it needs, in the order of their declaration.

    Needed is what the new `param` (or whatever else but state a part of the rule returns, such as a measure)
    depends on, and what these slots in turn depend on from one step to the next. A slot that is only updated
    or passed through is not.

    Raises:
        ShaderError: a part of the rule is not a map function.
    """
    slots: dict[str, None] = {}
    live: set[str] = set()
    flows: dict[str, set[str]] = {}
    present = [d.name for d in module.declarations if isinstance(d, Function) and d.name in RULE_PARTS]
    reader = _Reader(straighten(module, present))
    for part in present:
        state = dict(reader.straights[part].parameters).get("state")
        if state is None:
            continue
        slots.update(dict.fromkeys(path for path, _ in leaf_names(state, "state")))
        for leaf, sources in reader.function(part).items():
            if leaf == "state" or leaf.startswith("state."):
                flows.setdefault(leaf, set()).update(sources)
            else:
                live |= sources
    work = list(live)
    while work:
        fresh = flows.get(work.pop(), set()) - live
        live |= fresh
        work.extend(fresh)
    return tuple(slot.removeprefix("state").removeprefix(".") for slot in slots if slot in live)


def passed_through(module: Module, function: str) -> frozenset[str]:
    """The members of `state` that a part of a rule returns as it was given them."""
    result = straighten(module, [function])[function].result
    if not (isinstance(result, Call) and isinstance(result.type, Struct)):
        return frozenset()
    returned = zip((one.name for one in result.type.members), result.arguments, strict=True)
    state = next((value for name, value in returned if name == "state"), None)
    if isinstance(state, Call) and isinstance(state.type, Struct):
        pairs = zip((one.name for one in state.type.members), state.arguments, strict=True)
        return frozenset(name for name, value in pairs if isinstance(value, Name) and value.name == f"state.{name}")
    if isinstance(state, Name) and state.name == "state" and isinstance(state.type, Struct):
        return frozenset(one.name for one in state.type.members)
    return frozenset()


class _Reader:
    """Follows values through straight-line functions, each of which is read once."""

    def __init__(self, straights: dict[str, Straight]) -> None:
        self.straights = straights
        self.known: dict[str, _Leaves] = {}

    def function(self, name: str) -> _Leaves:
        if name not in self.known:
            straight = self.straights[name]
            values = {
                parameter: {_below(path, parameter): frozenset({path}) for path, _ in leaf_names(type_, parameter)}
                for parameter, type_ in straight.parameters
            }
            for target, expression in straight.assignments:
                values[target] = self.expression(expression, values)
            self.known[name] = self.expression(straight.result, values)
        return self.known[name]

    def expression(self, expression: Expression, values: dict[str, _Leaves]) -> _Leaves:
        def read(inner: Expression) -> _Leaves:
            return self.expression(inner, values)

        match expression:
            case Name(name=name):
                root, _, path = name.partition(".")
                return _part(values[root], path)
            case Member(base=base, name=name):
                return _part(read(base), name)
            case Unary(operand=operand):
                return read(operand)
            case Binary(left=left, right=right):
                return {"": read(left)[""] | read(right)[""]}
            case Call(kind="function"):
                return self.call(expression, read)
            case Call(kind="construct", type=Struct() as struct):
                return {
                    f"{member.name}.{path}" if path else member.name: sources
                    for member, argument in zip(struct.members, expression.arguments, strict=True)
                    for path, sources in read(argument).items()
                }
            case Call(arguments=arguments):
                return {"": _union(read(argument)[""] for argument in arguments)}
        return {"": frozenset()}

    def call(self, call: Call, read: Callable[[Expression], _Leaves]) -> _Leaves:
        """What the callee's leaves depend on, in terms of the caller's parameters."""
        given: _Leaves = {}
        for (parameter, _), argument in zip(self.straights[call.callee.name].parameters, call.arguments, strict=True):
            for path, sources in read(argument).items():
                given[f"{parameter}.{path}" if path else parameter] = sources
        inner = self.function(call.callee.name)
        return {leaf: _union(given[source] for source in sources) for leaf, sources in inner.items()}


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _below(path: str, root: str) -> str:
    return path[len(root) + 1 :]


def _part(leaves: _Leaves, path: str) -> _Leaves:
    """The member at `path` of a value."""
    if not path:
        return leaves
    return {
        leaf[len(path) + 1 :]: sources
        for leaf, sources in leaves.items()
        if leaf == path or leaf.startswith(f"{path}.")
    }
