"""If-conversion: turns a map function into straight-line code, for targets that compute on whole arrays.

A map function is a pure function over f32, i32, u32, bool and structs of these. Both sides of every branch
are evaluated, and `select` chooses the value. Loops are unrolled, so that their bounds must be constants.
`return`, `break` and `continue` become a condition, for which inputs they are executed, with the values at
that time; the code after them is evaluated for all inputs, and its values are not selected for these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from .straight import INLINE_SIZE, Builder, Straight, Value, is_literal, leaf_names, type_of
from .straight_expressions import Evaluator, Values, check_type, refuse
from .syntax import (
    Assign,
    Binary,
    Block,
    Break,
    CallStatement,
    Case,
    Constant,
    ConstAssert,
    Continue,
    Expression,
    For,
    Function,
    If,
    Literal,
    LocalDeclaration,
    Loop,
    Member,
    Module,
    Name,
    Position,
    Return,
    Statement,
    Switch,
    While,
)
from .typerules import concrete
from .types import BOOL, Type

__all__ = ["UNROLL_LIMIT", "straighten", "straighten_function"]

UNROLL_LIMIT = 256
"""The greatest number of iterations of all loops of a function, those of nested loops multiplied."""

_MAX_DEPTH = 40
"""The greatest depth of branches into which the statements that follow them in a block are moved."""


def straighten(
    module: Module,
    functions: list[str] | None = None,
    known: Collection[str] = (),
    inline_size: int = INLINE_SIZE,
) -> dict[str, Straight]:
    """Return the straight-line form of functions, and of those they call, in the order of the source.

    Args:
        module: checked and linked.
        functions: their names; None for every function of the module that is not an entry point.
        known: functions that the target provides.
        inline_size: how many nodes an expression may have that is written where its value is used, once.

    Raises:
        ShaderError: a function is not a map function; the message says why.
    """
    declared = {d.name: d for d in module.declarations if isinstance(d, Function)}
    if functions is None:
        functions = [name for name, function in declared.items() if not function.attributes]
    work = list(functions)
    done: dict[str, Straight] = {}
    while work:
        name = work.pop()
        if name not in done:
            called: set[str] = set()
            done[name] = straighten_function(module, declared[name], called, inline_size)
            work.extend(called.difference(known))
    return {name: done[name] for name in declared if name in done}


def straighten_function(
    module: Module, function: Function, called: set[str] | None = None, inline_size: int = INLINE_SIZE
) -> Straight:
    """Return the straight-line form of a function. The names of the functions it calls are added to `called`."""
    constants = {d.name: d for d in module.declarations if isinstance(d, Constant)}
    return _Straightener(function, constants, called if called is not None else set()).run(inline_size)


@dataclass(slots=True)
class _State:
    """The symbolic state at a position of the function.

    Attributes:
        values: of the variables.
        escapes: by jump ("return", "break 1", …) the condition for which it was executed before this position, and
            the values at that time.
        dead: no input reaches this position.
    """

    values: Values = field(default_factory=dict)
    escapes: dict[str, tuple[Expression, Values]] = field(default_factory=dict)
    dead: bool = False

    def copy(self) -> _State:
        return _State(dict(self.values), dict(self.escapes), self.dead)


_Run = Callable[[_State], None]


class _Straightener:
    def __init__(self, function: Function, constants: dict[str, Constant], called: set[str]) -> None:
        parameters = tuple((p.name, check_type(p.position, p.type)) for p in function.parameters)
        self.builder = Builder(parameters)
        self.expressions = Evaluator(self.builder, constants, called)
        self.function = function
        self.iterations = 0
        self.loops = 0
        self.depth = 0
        self.breaks: list[str] = []
        self.continues: list[str] = []

    def run(self, inline_size: int) -> Straight:
        function, state = self.function, _State()
        return_type = check_type(function.position, function.return_type)
        for parameter, (name, type_) in zip(function.parameters, self.builder.parameters, strict=True):
            leaves = leaf_names(type_, name)
            self.expressions.declare(name, tuple(Name(parameter.position, p, type=t) for p, t in leaves), state.values)
        self.block(function.body, state)
        if not state.dead or "return" not in state.escapes:
            refuse(function.position, f"every way through '{function.name}' must end in a return")
        result = self.builder.assemble(return_type, state.escapes["return"][1]["return"])
        return self.builder.finish(function.name, function.position, result, inline_size)

    def named(self, type_: Type, value: Value, word: str) -> Value:
        for (path, _), leaf in zip(leaf_names(type_, word), value, strict=True):
            root = leaf.name.partition(".")[0] if isinstance(leaf, Name) else ""
            whole = isinstance(leaf, Name) and root != leaf.name
            self.builder.hint(Name(leaf.position, root), word if whole else path.replace(".", "_"))
        return value

    # Statements.

    def block(self, block: Block, state: _State) -> None:
        self.expressions.scopes.append({})
        self.statements(block.statements, state)
        self.expressions.scopes.pop()

    def statements(self, statements: list[Statement], state: _State) -> None:
        for number, statement in enumerate(statements):
            if state.dead:
                break
            if isinstance(statement, If):
                following = statements[number + 1 :]
                if self.if_(statement, following, state):
                    break
            else:
                self.statement(statement, state)

    def statement(self, statement: Statement, state: _State) -> None:
        match statement:
            case LocalDeclaration():
                self.local(statement, state)
            case Assign():
                self.assign(statement, state)
            case Block():
                self.block(statement, state)
            case If():
                self.if_(statement, [], state)
            case Switch():
                self.switch(statement, state)
            case For() | While() | Loop():
                self.loop(statement, state)
            case Return(position=position, value=value):
                if value is None:
                    refuse(position, "a return needs a value")
                self.escape("return", {"return": self.expressions.evaluate(value, state.values)}, position, state)
            case Break(position=position):
                self.escape(self.breaks[-1], state.values, position, state)
            case Continue(position=position):
                self.escape(self.continues[-1], state.values, position, state)
            case CallStatement(call=call):
                self.expressions.evaluate(call, state.values)
            case ConstAssert():
                pass

    def local(self, statement: LocalDeclaration, state: _State) -> None:
        if statement.value is not None:
            value = self.expressions.evaluate(statement.value, state.values)
            type_ = check_type(statement.position, concrete(statement.type or type_of(statement.value)))
            value = self.named(type_, value, statement.name)
        else:
            type_ = check_type(statement.position, statement.type)
            value = self.expressions.zero(type_, statement.position)
        self.expressions.declare(statement.name, value, state.values)

    def assign(self, statement: Assign, state: _State) -> None:
        target, position = statement.target, statement.position
        if target is None:
            return
        sign = statement.operator
        source = Binary(position, sign, target, statement.value, target.type) if sign else statement.value
        value = self.expressions.evaluate(source, state.values)
        variable, start, word = self.assigned(target)
        self.named(type_of(target), value, word)
        old = state.values[variable]
        state.values[variable] = old[:start] + value + old[start + len(value) :]

    def assigned(self, target: Expression) -> tuple[str, int, str]:
        """Return the variable that an assignment changes, the index of its first leaf that changes, and a name."""
        if isinstance(target, Member):
            variable, start, word = self.assigned(target.base)
            offset, _ = self.expressions.member(target.position, type_of(target.base), target.name)
            return variable, start + offset, f"{word}_{target.name}"
        own = self.expressions.find(target.name) if isinstance(target, Name) else None
        if not isinstance(target, Name) or own is None:
            refuse(target.position, "only the function's own variables and their members can be assigned")
        return own, 0, target.name

    def if_(self, statement: If, following: list[Statement], state: _State) -> bool:
        """Evaluate an `if`, and return True if the statements that follow it in its block were evaluated too.

        If one branch ends in a jump, these statements are moved into the other: so ``if (a) { return x; } return y;``
        becomes a single select, without a condition for inputs that have returned.
        """
        ended: list[bool] = []

        def then(inner: _State) -> None:
            self.block(statement.then, inner)

        def otherwise(inner: _State) -> None:
            if statement.otherwise is not None:
                self.block(statement.otherwise, inner)

        def after(live: _State) -> None:
            self.statements(following, live)
            ended.append(True)

        condition = self.expressions.scalar(statement.condition, state.values)
        self.depth += 1
        self.branch(condition, state, then, otherwise, after if self.depth <= _MAX_DEPTH else None)
        self.depth -= 1
        return bool(ended)

    def branch(
        self, condition: Expression, state: _State, then: _Run, otherwise: _Run, following: _Run | None = None
    ) -> None:
        """Evaluate both branches on copies of the state, and merge these into it.

        If the condition is constant, only one branch is evaluated. If one of them ends in a jump, `following` is
        evaluated in the other.
        """
        if is_literal(condition):
            (then if is_literal(condition, True) else otherwise)(state)
            return
        then_state, otherwise_state = state.copy(), state.copy()
        then(then_state)
        otherwise(otherwise_state)
        if following is not None and then_state.dead != otherwise_state.dead:
            following(otherwise_state if then_state.dead else then_state)
        never = Literal(condition.position, False, type=BOOL)
        escapes = {}
        for jump in sorted({*then_state.escapes, *otherwise_state.escapes}):
            taken, values = then_state.escapes.get(jump, (never, None))
            taken_too, values_too = otherwise_state.escapes.get(jump, (never, None))
            merged = self.merge(values_too or values or {}, values or values_too or {}, condition)
            escapes[jump] = (self.builder.select(taken_too, taken, condition), merged)
        state.escapes = escapes
        state.dead = then_state.dead and otherwise_state.dead
        if then_state.dead or otherwise_state.dead:
            live_values = (otherwise_state if then_state.dead else then_state).values
            state.values = {variable: live_values[variable] for variable in state.values}
        else:
            outer = {variable: otherwise_state.values[variable] for variable in state.values}
            state.values = self.merge(outer, then_state.values, condition)

    def merge(self, otherwise: Values, then: Values, condition: Expression) -> Values:
        """Return the variables that are in both, with the value in `then` where the condition holds."""
        merged = {}
        for variable, value in otherwise.items():
            if variable in then:
                pairs = zip(value, then[variable], strict=True)
                merged[variable] = tuple(self.builder.select(f, t, condition) for f, t in pairs)
                if len(value) == 1 and variable != "return":
                    self.builder.hint(merged[variable][0], variable.partition(" ")[0])
        return merged

    # Jumps: return, break, continue.

    def escape(self, jump: str, values: Values, position: Position, state: _State) -> None:
        """Add a jump for all inputs that have not jumped before, so that each input takes at most one jump."""
        jumped: Expression = Literal(position, False, type=BOOL)
        for earlier, (taken, _) in state.escapes.items():
            if earlier != jump:
                jumped = self.builder.either(jumped, taken)
        here = self.builder.negate(jumped)
        if jump in state.escapes:
            taken, before = state.escapes[jump]
            values = self.merge(values, before, taken)
        state.escapes[jump] = (here, dict(values))
        state.dead = True

    def join(self, jump: str, state: _State) -> None:
        """Merge the values at a jump into the state at its target."""
        if jump not in state.escapes:
            return
        taken, values = state.escapes.pop(jump)
        state.values = values if state.dead else self.merge(state.values, values, taken)
        state.dead = False

    def switch(self, statement: Switch, state: _State) -> None:
        selector = self.expressions.scalar(statement.selector, state.values)
        default = next(case for case in statement.cases if case.is_default)
        cases = [case for case in statement.cases if not case.is_default]
        self.loops += 1
        self.breaks.append(f"break {self.loops}")

        def chosen(case: Case) -> Expression:
            condition: Expression = Literal(case.position, False, type=BOOL)
            for label in case.selectors:
                value = Literal(
                    label.position, _number(self.expressions.scalar(label, state.values)), type=type_of(selector)
                )
                same = self.builder.emit(Binary(label.position, "==", selector, value, BOOL))
                condition = self.builder.either(condition, same)
            return condition

        def run(remaining: list[Case], inner: _State) -> None:
            if not remaining:
                self.block(default.body, inner)
                return
            self.branch(
                chosen(remaining[0]), inner, lambda s: self.block(remaining[0].body, s), lambda s: run(remaining[1:], s)
            )

        run(cases, state)
        self.join(self.breaks.pop(), state)

    def loop(self, statement: For | While | Loop, state: _State) -> None:
        """Unroll a loop: evaluate its body while the condition is the literal true and some input reaches it."""
        self.loops += 1
        self.breaks.append(f"break {self.loops}")
        self.continues.append(f"continue {self.loops}")
        self.expressions.scopes.append({})
        if isinstance(statement, For) and statement.initial is not None:
            self.statement(statement.initial, state)
        while not state.dead and self.enters_body(statement, state):
            self.iterations += 1
            if self.iterations > UNROLL_LIMIT:
                refuse(statement.position, f"loops may come to {UNROLL_LIMIT} iterations at most")
            self.expressions.scopes.append({})
            self.statements(statement.body.statements, state)
            self.join(self.continues[-1], state)
            if not state.dead:
                self.continuing(statement, state)
            self.expressions.scopes.pop()
        self.expressions.scopes.pop()
        self.continues.pop()
        self.join(self.breaks.pop(), state)

    def enters_body(self, statement: For | While | Loop, state: _State) -> bool:
        if isinstance(statement, Loop) or statement.condition is None:
            return True
        condition = self.expressions.scalar(statement.condition, state.values)
        if not is_literal(condition):
            refuse(
                statement.condition.position,
                "a loop needs constant bounds; bound it by a constant and `break` where it is done",
            )
        return is_literal(condition, True)

    def continuing(self, statement: For | While | Loop, state: _State) -> None:
        if isinstance(statement, For) and statement.update is not None:
            self.statement(statement.update, state)
        elif isinstance(statement, Loop):
            if statement.continuing is not None:
                self.statements(statement.continuing.statements, state)
            if statement.break_if is not None:
                done = self.expressions.scalar(statement.break_if, state.values)
                leave = Break(statement.break_if.position)
                self.branch(done, state, lambda s: self.statement(leave, s), lambda s: None)


def _number(expression: Expression) -> int:
    if not isinstance(expression, Literal):
        refuse(expression.position, "a case needs a constant")
    return int(expression.value)
