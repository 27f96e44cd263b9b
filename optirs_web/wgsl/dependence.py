"""Computes the inputs on which each output of a map function depends, and the state slots that a rule needs.

Branches that the linker has removed add no dependences: with ``amsgrad`` false the new `param` does not depend on
``state.max_exp_avg_sq``, so that slot is neither allocated nor bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .straight import Straight, leaf_names
from .straighten import straighten
from .syntax import Binary, Call, Expression, Function, Member, Module, Name, Unary
from .types import Struct

__all__ = ["RULE_PARTS", "dependencies", "live_slots", "passed_through"]

RULE_PARTS = ("update", "prepare", "adapt", "measure", "train", "eval", "perturb", "restore")
"""The functions of a rule that run at every step or on call and may read state. `init` only writes it."""

_Leaves = dict[str, frozenset[str]]
"""For each scalar leaf of a value, the leaves of parameters on which it depends. The only leaf of a scalar is ""."""


def dependencies(module: Module, function: str) -> dict[str, frozenset[str]]:
    """Return, for each leaf of the function's result, the leaves of its parameters on which it depends.

    Calls are followed. A value that is returned unchanged depends on itself:
    ``{"param": {"param", "grad", "h.lr"}, "state.step": {"state.step"}}``. A scalar result is the leaf "".

    Raises:
        ShaderError: the function is not a map function.
    """
    return _Reader(straighten(module, [function])).function(function)


def live_slots(module: Module) -> tuple[str, ...]:
    """Return the leaves of a rule's `state` that it needs, in the order of their declaration.

    These are the slots on which the new `param` depends (or any other result of the rule's functions except state,
    such as a measure), and the slots on which these depend from step to step. A slot that is only updated or returned
    unchanged is not needed.

    Raises:
        ShaderError: a function of the rule is not a map function.
    """
    slots: dict[str, None] = {}
    live: set[str] = set()
    flows: dict[str, set[str]] = {}
    present = [d.name for d in module.declarations if isinstance(d, Function) and d.name in RULE_PARTS]
    reader = _Reader(straighten(module, present))
    for function in present:
        state = dict(reader.straights[function].parameters).get("state")
        if state is None:
            continue
        slots.update(dict.fromkeys(path for path, _ in leaf_names(state, "state")))
        for leaf, sources in reader.function(function).items():
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
    """Return the members of `state` that a function of a rule returns unchanged."""
    result = straighten(module, [function])[function].result
    if not (isinstance(result, Call) and isinstance(result.type, Struct)):
        return frozenset()
    returned = zip((member.name for member in result.type.members), result.arguments, strict=True)
    state = next((value for name, value in returned if name == "state"), None)
    if isinstance(state, Call) and isinstance(state.type, Struct):
        pairs = zip((member.name for member in state.type.members), state.arguments, strict=True)
        return frozenset(name for name, value in pairs if isinstance(value, Name) and value.name == f"state.{name}")
    if isinstance(state, Name) and state.name == "state" and isinstance(state.type, Struct):
        return frozenset(member.name for member in state.type.members)
    return frozenset()


class _Reader:
    """Computes dependences in straight-line functions, once for each function."""

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
        """Return the leaves of the caller's parameters on which each leaf of the call's result depends."""
        passed: _Leaves = {}
        for (parameter, _), argument in zip(self.straights[call.callee.name].parameters, call.arguments, strict=True):
            for path, sources in read(argument).items():
                passed[f"{parameter}.{path}" if path else parameter] = sources
        inner = self.function(call.callee.name)
        return {leaf: _union(passed[source] for source in sources) for leaf, sources in inner.items()}


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _below(path: str, root: str) -> str:
    return path[len(root) + 1 :]


def _part(leaves: _Leaves, path: str) -> _Leaves:
    """Return the dependences of the member at `path` of a value."""
    if not path:
        return leaves
    return {
        leaf[len(path) + 1 :]: sources
        for leaf, sources in leaves.items()
        if leaf == path or leaf.startswith(f"{path}.")
    }
