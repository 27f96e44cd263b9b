"""The checker: names, types and the rules of statements. It fills in `type` and `kind` all over the tree.

After it no abstract number is left where the shader runs: what was abstract is a literal, or a vector or array of
literals, of the type that its place asked for, rounded once from the exact value.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView
from typing import NamedTuple

from .constants import Value
from .declarations import DeclarationChecker
from .references import module_references
from .scopes import Binding, Place, fail
from .syntax import (
    Assign,
    Binary,
    Block,
    Break,
    CallStatement,
    ConstAssert,
    Continue,
    Expression,
    For,
    Function,
    GlobalVariable,
    If,
    LocalDeclaration,
    Loop,
    Module,
    Return,
    Statement,
    Switch,
    While,
)
from .typerules import CONCRETE_INTEGERS, concrete, is_constructible, join
from .types import BOOL, Type

__all__ = ["Checked", "check", "check_places", "check_values", "has_continue", "has_exit", "leaves"]


def check(module: Module) -> None:
    """Check a module without imports and fill in its types. Raises ShaderError at the first thing that is wrong.

    A module may be checked again, for instance after a part of it was replaced.
    """
    checker = _StatementChecker(module)
    checker.run()
    checker.check_places()


def check_places(module: Module) -> None:
    """Raise ShaderError where two bindings of an entry point share a place."""
    _StatementChecker(module).check_places()


class Checked(NamedTuple):
    """The values of constants, and the names that functions use, of a module that was checked.

    Attributes:
        constants: the const-expressions with their values, by the `id` of the nodes.
        uses: the names that each function has, but for those of its locals, in the order of the source.
    """

    constants: dict[int, tuple[Expression, Value]]
    uses: dict[str, KeysView[str]]


def check_values(module: Module) -> Checked:
    """Check a module, and return its constants and the names that its functions use.

    Places of bindings are left to `check_places`: constants may decide which binding of a place an entry point uses.
    """
    checker = _StatementChecker(module)
    return Checked(checker.known, checker.run())


class _StatementChecker(DeclarationChecker):
    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.function: Function | None = None
        self.context: list[str] = []
        self.statements: dict[type, Callable[..., None]] = {
            LocalDeclaration: self.local,
            Assign: self.assign,
            Block: self.block,
            If: self.if_,
            For: self.for_,
            While: self.while_,
            Loop: self.loop,
            Switch: self.switch,
            Return: self.return_,
            Break: self.break_,
            Continue: self.continue_,
            CallStatement: self.call_statement,
            ConstAssert: self.check_assertion,
        }

    def run(self) -> dict[str, KeysView[str]]:
        """Check everything but the places of bindings, and return the names that each function uses."""
        self.check_declarations()
        for one in self.module.declarations:
            if isinstance(one, Function):
                self.check_function(one)
        uses = self.uses()
        self.check_call_graph(uses)
        return uses

    def check_function(self, one: Function) -> None:
        self.function = one
        self.scopes.stack.append({})
        for parameter in one.parameters:
            assert parameter.type is not None
            self.scopes.declare(parameter.name, Binding("parameter", parameter.type), parameter.position)
        self.sequence(one.body.statements)
        self.scopes.stack.pop()
        if one.return_type is not None and not leaves(one.body):
            raise fail(one.position, f"'{one.name}' must end in a return on every way through it")

    # Blocks.

    def block(self, block: Block) -> None:
        self.scopes.stack.append({})
        self.sequence(block.statements)
        self.scopes.stack.pop()

    def sequence(self, statements: list[Statement]) -> None:
        for number, statement in enumerate(statements):
            if number and leaves(statements[number - 1], jumps=True):
                raise fail(statement.position, "this statement is never reached; remove it")
            self.statements[type(statement)](statement)

    def nested(self, context: str, block: Block) -> None:
        self.context.append(context)
        self.block(block)
        self.context.pop()

    # Statements.

    def local(self, one: LocalDeclaration) -> None:
        wanted = None if one.type_name is None else self.resolve(one.type_name)
        if wanted is not None and not is_constructible(wanted):
            assert one.type_name is not None
            raise fail(one.type_name.position, f"a variable in a function cannot be {wanted}")
        if one.value is None:
            assert wanted is not None
            binding = Binding("var", wanted)
        else:
            binding = self.initialised(one, one.value, wanted)
        if one.keyword == "var":
            place = Place(one.name, "function", "read_write")
            binding = Binding("var", binding.type, None, place)
        one.type = binding.type
        self.scopes.declare(one.name, binding, one.position)

    def initialised(self, one: LocalDeclaration, value: Expression, wanted: Type | None) -> Binding:
        what = f"'{one.name}'"
        if one.keyword == "const":
            operand = self.constant(value, f"the value of {what}")
            if wanted is not None:
                operand = self.convert(operand, wanted, what)
                one.value = operand.node
            return Binding("const", operand.type, operand.value)
        operand = self.value(value)
        operand = self.convert(operand, concrete(operand.type) if wanted is None else wanted, what)
        one.value = operand.node
        return Binding(one.keyword, operand.type)

    def assign(self, one: Assign) -> None:
        if one.target is None:
            one.value = self.concrete(one.value).node
            return
        target = self.operand(one.target)
        place = target.place
        if place is None:
            raise fail(one.target.position, f"this cannot be assigned{self.why_fixed(one.target)}")
        if place.access != "read_write":
            raise fail(one.target.position, f"'{place.name}' can only be read: it is a {place.space} variable")
        if not is_constructible(target.type):
            raise fail(one.target.position, f"{target.type} cannot be assigned; use atomicStore, or assign elements")
        value = self.value(one.value)
        if one.operator:
            node = Binary(one.position, one.operator, one.target, one.value)
            _, value, result = self.combine(node, target, value)
            if result != target.type:
                raise fail(one.position, f"'{one.operator}=' gives {result}, but this variable is {target.type}")
        else:
            value = self.convert(value, target.type, "the value assigned")
        one.target, one.value = target.node, value.node

    def why_fixed(self, target: Expression) -> str:
        root = target
        while hasattr(root, "base"):
            root = root.base
        binding = self.scopes.find(getattr(root, "name", ""))
        if binding is not None and binding.kind in ("let", "const", "parameter"):
            return f": '{getattr(root, 'name', '')}' is a {binding.kind}; copy it into a var"
        return "; only variables, their members and elements, and one component of a vector can"

    def condition(self, node: Expression) -> Expression:
        operand = self.concrete(node)
        if operand.type != BOOL:
            raise fail(node.position, f"a condition must be bool, but this is {operand.type}")
        return operand.node

    def if_(self, one: If) -> None:
        one.condition = self.condition(one.condition)
        self.block(one.then)
        if one.otherwise is not None:
            self.block(one.otherwise)

    def for_(self, one: For) -> None:
        if one.unrolled is not None and self.constant(one.unrolled, "the condition of @unroll").type != BOOL:
            raise fail(one.position, "the condition of @unroll must be bool")
        self.scopes.stack.append({})
        if one.initial is not None:
            self.statements[type(one.initial)](one.initial)
        if one.condition is not None:
            one.condition = self.condition(one.condition)
        if one.update is not None:
            self.statements[type(one.update)](one.update)
        self.nested("loop", one.body)
        self.scopes.stack.pop()
        if one.condition is None and not has_exit(one.body):
            raise fail(one.position, "this loop never ends; give it a condition, a break or a return")

    def while_(self, one: While) -> None:
        one.condition = self.condition(one.condition)
        self.nested("loop", one.body)

    def loop(self, one: Loop) -> None:
        self.context.append("loop")
        self.scopes.stack.append({})
        self.sequence(one.body.statements)
        hidden: dict[str, Binding] | None = None
        if has_continue(one.body):
            hidden = self.scopes.stack.pop()  # a continue may have skipped what the body declares
        self.context.append("continuing")
        if one.continuing is not None:
            self.scopes.stack.append({})
            self.sequence(one.continuing.statements)
            if one.break_if is not None:
                one.break_if = self.condition(one.break_if)
            self.scopes.stack.pop()
        self.context.pop()
        if hidden is None:
            self.scopes.stack.pop()
        self.context.pop()
        if one.break_if is None and not has_exit(one.body):
            raise fail(one.position, "this loop never ends; give it a break, a return or a 'break if'")

    def switch(self, one: Switch) -> None:
        selector = self.value(one.selector)
        common: Type | None = selector.type
        cases = [(case, [self.constant(node, "a case") for node in case.selectors]) for case in one.cases]
        for operand in (operand for _, operands in cases for operand in operands):
            common = None if common is None else join(common, operand.type)
            if common is None:
                raise fail(operand.node.position, f"a case must be {selector.type}, but this is {operand.type}")
        type_ = concrete(common) if common is not None else selector.type
        if type_ not in CONCRETE_INTEGERS:
            raise fail(one.selector.position, f"a switch is over i32 or u32, not {type_}")
        one.selector = self.convert(selector, type_, "the selector").node
        seen: set[object] = set()
        for case, operands in cases:
            for operand in operands:
                operand = self.convert(operand, type_, "a case")
                if operand.value in seen:
                    raise fail(operand.node.position, f"case {operand.value} is given twice")
                seen.add(operand.value)
            case.selectors = [self.convert(operand, type_, "a case").node for operand in operands]
            self.nested("switch", case.body)

    def return_(self, one: Return) -> None:
        assert self.function is not None
        wanted = self.function.return_type
        if "continuing" in self.context:
            raise fail(one.position, "a continuing block cannot return")
        if wanted is None or one.value is None:
            if (wanted is None) != (one.value is None):
                what = "returns nothing" if wanted is None else f"must return {wanted}"
                raise fail(one.position, f"'{self.function.name}' {what}")
            return
        one.value = self.convert(self.value(one.value), wanted, "the value returned").node

    def break_(self, one: Break) -> None:
        if not self.context or self.context[-1] not in ("loop", "switch"):
            raise fail(one.position, "a break must be in a loop or a switch")

    def continue_(self, one: Continue) -> None:
        around = [context for context in self.context if context != "switch"]
        if not around or around[-1] != "loop":
            raise fail(one.position, "a continue must be in the body of a loop")

    def call_statement(self, one: CallStatement) -> None:
        name = one.call.callee.name
        operand = self.call(one.call)
        if operand is not None:
            one.call.type = operand.type
        is_atomic = name.startswith("atomic") and name != "atomicLoad"
        if operand is not None and one.call.kind != "function" and not is_atomic:
            raise fail(one.position, f"the value of '{name}' must be used; write _ = {name}(...) to drop it")

    # The module as a whole.

    def check_call_graph(self, uses: dict[str, KeysView[str]]) -> None:
        """No function may reach itself."""
        done: set[str] = set()
        for name in uses:
            self.check_recursion(name, uses, done)

    def uses(self) -> dict[str, KeysView[str]]:
        """Return, by function, the names in it that are no locals, in the order of the source."""
        return {
            one.name: dict.fromkeys(reference.name for reference in module_references(one)).keys()
            for one in self.module.declarations
            if isinstance(one, Function)
        }

    def check_places(self) -> None:
        """No two bindings of an entry point may share a place."""
        bindings = [one for one in self.module.declarations if isinstance(one, GlobalVariable) and one.attributes]
        if len({self.place(one) for one in bindings}) == len(bindings):
            return
        uses = self.uses()
        for one in self.module.declarations:
            if isinstance(one, Function) and one.attributes:
                reached = _reached(one.name, uses)
                self.check_bindings([binding for binding in bindings if binding.name in reached])

    def check_recursion(self, start: str, uses: dict[str, KeysView[str]], done: set[str]) -> None:
        """Depth first, with a stack of its own: what is on the way to a function may not be called by it."""
        path: dict[str, None] = {}
        work = [(start, False)]
        while work:
            name, is_left = work.pop()
            if is_left:
                path.popitem()
                done.add(name)
            elif name not in done:
                path[name] = None
                work.append((name, True))
                for other in sorted(uses[name] & uses.keys()):
                    if other in path:
                        way = list(path)
                        circle = " calls ".join([*way[way.index(other) :], other])
                        raise fail(self.declared[other].position, f"WGSL has no recursion: {circle}")
                    work.append((other, False))

    def check_bindings(self, bindings: list[GlobalVariable]) -> None:
        places: dict[tuple[int, int], str] = {}
        for one in bindings:
            place = self.place(one)
            if place in places:
                raise fail(one.position, f"'{one.name}' and '{places[place]}' share one @group and @binding")
            places[place] = one.name

    def place(self, one: GlobalVariable) -> tuple[int, int]:
        """The group and the binding of a variable."""
        numbers = {a.name: self.constant_integer(a.arguments[0], "this") for a in one.attributes}
        return numbers["group"], numbers["binding"]


def _reached(start: str, uses: dict[str, KeysView[str]]) -> set[str]:
    """All names that a function uses, itself or through others."""
    found: set[str] = set()
    work = [start]
    while work:
        new = set(uses.get(work.pop(), ())) - found
        found |= new
        work += new
    return found


def leaves(statement: Statement, jumps: bool = False) -> bool:
    """Whether every way through it ends in a return (or, with `jumps`, in a break or continue).

    Loops count as passed, as the strictest tools have it: after one, write the return.
    """
    match statement:
        case Return():
            return True
        case Break() | Continue():
            return jumps
        case Block(statements=statements):
            return bool(statements) and leaves(statements[-1], jumps)
        case If(then=then, otherwise=otherwise):
            return otherwise is not None and leaves(then, jumps) and leaves(otherwise, jumps)
        case Switch(cases=cases):
            return all(leaves(case.body) and not _has_break(case.body) for case in cases)
    return False


def _children(statement: Statement) -> list[Block]:
    """The blocks of a statement that are not loops."""
    match statement:
        case Block():
            return [statement]
        case If(then=then, otherwise=otherwise):
            return [then] if otherwise is None else [then, otherwise]
        case Switch(cases=cases):
            return [case.body for case in cases]
    return []


def _has_break(block: Block) -> bool:
    """Whether a break in it leaves what it is the body of."""
    return any(
        isinstance(one, Break) or (not isinstance(one, Switch) and any(_has_break(inner) for inner in _children(one)))
        for one in block.statements
    )


def has_continue(block: Block) -> bool:
    """Whether a continue in it belongs to the loop around it."""
    return any(
        isinstance(one, Continue) or any(has_continue(inner) for inner in _children(one)) for one in block.statements
    )


def _has_return(block: Block) -> bool:
    return any(
        isinstance(one, Return)
        or any(_has_return(inner) for inner in _children(one))
        or (isinstance(one, For | While | Loop) and _has_return(one.body))
        for one in block.statements
    )


def has_exit(body: Block) -> bool:
    """Whether the body of a loop has a way out of it."""
    return _has_break(body) or _has_return(body)
