"""Statements of NumPy that compute elements one operation at a time, each into memory that nothing needs any more.

A new array for a block of rows, 256 kB, takes half as long as the operation that fills it: its pages are new each time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..kernel import Kind
from ..wgsl.python_dialects import NUMPY, NUMPY_IN_DOUBLE

__all__ = ["Statements"]

_OPERATORS = {ast.Add: "np.add", ast.Sub: "np.subtract", ast.Mult: "np.multiply", ast.Div: "np.divide"}
_FUNCTIONS = frozenset({"np.abs", "np.exp", "np.fmax", "np.fmin", "np.log", "np.sqrt"})
_HELPERS = NUMPY_IN_DOUBLE.helpers.keys() - NUMPY.helpers.keys()  # which have `out` too
_FLOAT_CONSTANT = "_f_"  # how names of constants begin, see `print_python`


@dataclass(slots=True)
class _Statement:
    """One line of the text, which gives a name its value.

    Attributes:
        call: an expression; with `out`, a call without its closing bracket.
        operands: the names that it reads.
        has_out: the call has a parameter `out`, where it writes its result.
        may_alias: the result may be in the memory of an operand.
        over_operands: it may write over operands, element by element.
    """

    name: str
    call: str
    operands: tuple[str, ...]
    has_out: bool = False
    may_alias: bool = False
    over_operands: bool = False


@dataclass(slots=True)
class Statements:
    """The statements of a kernel, built up in order.

    Attributes:
        functions: those that are printed.
        kinds: of each name.
        others: names whose values may not be float32.
        floats: functions that return float32.
    """

    functions: Mapping[str, ast.FunctionDef]
    kinds: dict[str, Kind]
    others: set[str] = field(default_factory=set)
    floats: frozenset[str] = frozenset()
    _statements: list[_Statement] = field(default_factory=list)

    def element(self, name: str, function: str, arguments: Sequence[str]) -> str:
        """Add what computes a function of elements; return the name of its value: `name`, or another that has it."""
        body = self.functions[function]
        names = dict(zip((argument.arg for argument in body.args.args), arguments, strict=True))
        *assignments, last = body.body
        for assignment in assignments:
            assert isinstance(assignment, ast.Assign)
            (target,) = assignment.targets
            assert isinstance(target, ast.Name)
            names[target.id] = self._flat(assignment.value, names)
        assert isinstance(last, ast.Return)
        assert last.value is not None
        computed = self._flat(last.value, names, name)
        if computed in self.kinds:
            return computed
        if not computed.startswith(_FLOAT_CONSTANT):
            self.others.add(name)
        return self._add(_Statement(name, computed, ()), "number")

    def other(self, name: str, call: str, operands: Iterable[str], *, has_out: bool = False) -> None:
        """Add a call whose value is in new memory, or of elements where it is told by `out`."""
        self._statements.append(
            _Statement(name, call.removesuffix(")") if has_out else call, tuple(operands), has_out=has_out)
        )

    def converted(self, name: str, elements: str) -> str:
        """Add the conversion of bools to u32; return the name."""
        self.others.add(name)
        return self._add(_Statement(name, f"np.uint32({elements})", (elements,)), self.kinds[elements])

    def product_of(self, name: str) -> tuple[str, str] | None:
        """Take back the last statement if it multiplies elements to give this value; return what it multiplies."""
        last = self._statements[-1] if self._statements else None
        if last is None or last.name != name or not last.call.startswith("np.multiply("):
            return None
        if len(last.operands) < 2 or any(self.kinds[operand] == "number" for operand in last.operands):
            return None
        self._statements.pop()
        first, second = last.operands
        return first, second

    def _add(self, statement: _Statement, kind: Kind) -> str:
        self._statements.append(statement)
        self.kinds[statement.name] = kind
        return statement.name

    def _flat(self, node: ast.expr, names: Mapping[str, str], name: str = "") -> str:
        """Add what computes an expression, and return the name of its value."""
        if isinstance(node, ast.Name):
            return names.get(node.id, node.id)
        function, arguments = "", list[ast.expr]()
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            function, arguments = _OPERATORS[type(node.op)], [node.left, node.right]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _FUNCTIONS | _HELPERS:
            function, arguments = ast.unparse(node.func), node.args
        if function:
            operands = [self._flat(argument, names) for argument in arguments]
            if all(map(self._is_float, operands)):
                return self._called(function, operands, name)
            node = _with_operands(node, operands)
            names = {operand: operand for operand in operands}
        return self._whole(node, names, name)

    def _is_float(self, name: str) -> bool:
        return name.startswith(_FLOAT_CONSTANT) or (name in self.kinds and name not in self.others)

    def _called(self, function: str, operands: Sequence[str], name: str) -> str:
        """Add a call of a function that has a parameter `out`."""
        kinds: set[Kind] = {self.kinds.get(operand, "number") for operand in operands}
        name = name or self._fresh()
        if not ("element" in kinds or {"row", "column"} <= kinds):
            kind: Kind = "column" if "column" in kinds else "row" if "row" in kinds else "number"
            return self._add(_Statement(name, f"{function}({', '.join(operands)})", tuple(operands)), kind)
        if function == "np.multiply" and kinds == {"row", "column"}:
            row, column = sorted(operands, key=lambda operand: self.kinds[operand] != "row")
            return self._add(_Statement(name, f"_outer({row}, {column}", (row, column), has_out=True), "element")
        spread = [self._spread(operand) for operand in operands]
        call = f"{function}({', '.join(spread)}"
        used = tuple(operand for operand in spread if operand in self.kinds)
        return self._add(_Statement(name, call, used, has_out=True, over_operands=True), "element")

    def _whole(self, node: ast.expr, names: Mapping[str, str], name: str) -> str:
        """Add an expression as it is."""
        used = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        renamed = {part: self._spread(names[part]) for part in dict.fromkeys(used) if part in names}
        text = ast.unparse(_Renamed(renamed).visit(ast.parse(ast.unparse(node), mode="eval")))
        operands = tuple(operand for operand in renamed.values() if operand in self.kinds)
        name = name or self._fresh()
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) in self.floats):
            self.others.add(name)
        return self._add(_Statement(name, text, operands, may_alias=True), "element")

    def _spread(self, name: str) -> str:
        """Return a name that has a value of rows for each element; another name as it is."""
        if self.kinds.get(name) != "row" or name in self.others:
            return name
        table = f"w_{name.removeprefix('v_')}"
        if table not in self.kinds:
            self._add(_Statement(table, f"_across({name}", (name,), has_out=True), "element")
        return table

    def _fresh(self) -> str:
        return f"t{sum(statement.name.startswith('t') for statement in self._statements)}"

    def text(
        self, results: Mapping[str, str], held: Mapping[str, str] | None = None, others: Iterable[str] = ()
    ) -> tuple[list[str], int]:
        """Return the statements as text, and how many arrays m0, m1, … they need.

        Args:
            results: by array the name of the value that it should get. Where that cannot be, the value is elsewhere.
            held: by array the name of the value that it has at first.
            others: the values that are needed at the end besides.
        """
        last = {
            name: at for at, statement in enumerate(self._statements) for name in (statement.name, *statement.operands)
        }
        last |= dict.fromkeys((*results.values(), *others), len(self._statements))
        memory = _Memory({array: {(held or {})[array]} if array in (held or {}) else set() for array in results})
        wanted = {name: array for array, name in results.items()}
        lines = []
        for at, statement in enumerate(self._statements):
            dying = {name for name in statement.operands if last[name] == at}
            call = statement.call
            if statement.has_out:
                over = dying if statement.over_operands else set()
                call += f", out={memory.take(statement.name, over, wanted.get(statement.name, ''))})"
            elif statement.may_alias:
                memory.share(statement.name, statement.operands)
            memory.leave(dying)
            lines.append(f"{statement.name} = {call}")
        return lines, memory.count


def _with_operands(node: ast.expr, operands: Sequence[str]) -> ast.expr:
    """Return an operation with the names of its operands in place of these."""
    named: list[ast.expr] = [ast.Name(operand) for operand in operands]
    if isinstance(node, ast.BinOp):
        return ast.BinOp(named[0], node.op, named[1])
    assert isinstance(node, ast.Call)
    return ast.Call(node.func, named, [])


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


class _Memory:
    """Arrays of the size of a block, and the names whose values are in each.

    Attributes:
        count: of those that are not arrays for results.
    """

    def __init__(self, users: dict[str, set[str]]) -> None:
        self._users = users
        self.count = 0

    def take(self, name: str, over: set[str], wanted: str) -> str:
        """Return the array for a value: that which is wanted, one of those written over, or a free one."""
        free = [array for array, users in self._users.items() if users <= over]
        over_operand = [array for array in free if self._users[array]]
        chosen = wanted if wanted in free else (*over_operand, *free, "")[0]
        if not chosen:
            chosen = f"m{self.count}"
            self.count += 1
        self._users[chosen] = {name}
        return chosen

    def share(self, name: str, operands: Iterable[str]) -> None:
        """Note that a value may be in the memory of others."""
        for users in self._users.values():
            if not users.isdisjoint(operands):
                users.add(name)

    def leave(self, names: Iterable[str]) -> None:
        """Note that nothing needs these values any more."""
        for users in self._users.values():
            users.difference_update(names)
