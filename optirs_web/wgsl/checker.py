"""Checks statements and the module as a whole, and fills in `type` and `kind` of every node of the tree.

After the check no abstract number is left where the shader runs: each has become a literal, or a vector or array of
literals, of the type that its context requires, rounded once from the exact value.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView
from typing import NamedTuple

from .constants import Value
from .declarations import DeclarationChecker
from .references import module_references
from .scopes import Binding, Memory, fail
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
    """Check a module without imports and fill in its types. Raises ShaderError at the first error.

    A module may be checked again, for instance after some of its declarations were replaced.
    """
    checker = _StatementChecker(module)
    checker.run()
    checker.check_places()


def check_places(module: Module) -> None:
    """Raise ShaderError if two variables that an entry point uses have the same @group and @binding."""
    _StatementChecker(module).check_places()


class Checked(NamedTuple):
    """The values of constants and the names that functions use, in a checked module.

    Attributes:
        constants: the const-expressions with their values, by the `id` of the nodes.
        uses: the names in each function, except those of its locals, in the order of the source.
    """

    constants: dict[int, tuple[Expression, Value]]
    uses: dict[str, KeysView[str]]


def check_values(module: Module) -> Checked:
    """Check a module, and return its constants and the names that its functions use.

    @group and @binding are left to `check_places`: constants may decide which of two variables an entry point uses.
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
        """Check everything except @group and @binding, and return the names that each function uses."""
        self.check_declarations()
        for declaration in self.module.declarations:
            if isinstance(declaration, Function):
                self.check_function(declaration)
        uses = self.uses()
        self.check_call_graph(uses)
        return uses

    def check_function(self, function: Function) -> None:
        self.function = function
        self.scopes.stack.append({})
        for parameter in function.parameters:
            assert parameter.type is not None
            self.scopes.declare(parameter.name, Binding("parameter", parameter.type), parameter.position)
        self.sequence(function.body.statements)
        self.scopes.stack.pop()
        if function.return_type is not None and not leaves(function.body):
            raise fail(function.position, f"'{function.name}' must end in a return on every way through it")

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

    def local(self, declaration: LocalDeclaration) -> None:
        expected = None if declaration.type_name is None else self.resolve(declaration.type_name)
        if expected is not None and not is_constructible(expected):
            assert declaration.type_name is not None
            raise fail(declaration.type_name.position, f"a variable in a function cannot be {expected}")
        if declaration.value is None:
            assert expected is not None
            binding = Binding("var", expected)
        else:
            binding = self.initialised(declaration, declaration.value, expected)
        if declaration.keyword == "var":
            memory = Memory(declaration.name, "function", "read_write")
            binding = Binding("var", binding.type, None, memory)
        declaration.type = binding.type
        self.scopes.declare(declaration.name, binding, declaration.position)

    def initialised(self, declaration: LocalDeclaration, value: Expression, expected: Type | None) -> Binding:
        role = f"'{declaration.name}'"
        if declaration.keyword == "const":
            operand = self.constant(value, f"the value of {role}")
            if expected is not None:
                operand = self.convert(operand, expected, role)
                declaration.value = operand.node
            return Binding("const", operand.type, operand.value)
        operand = self.value(value)
        type_ = concrete(operand.type) if expected is None else expected
        if operand.type is not type_:
            operand = self.convert(operand, type_, role)
        declaration.value = operand.node
        return Binding(declaration.keyword, operand.type)

    def assign(self, statement: Assign) -> None:
        if statement.target is None:
            statement.value = self.concrete(statement.value).node
            return
        target = self.operand(statement.target)
        memory = target.memory
        if memory is None:
            raise fail(statement.target.position, f"this cannot be assigned{self.why_fixed(statement.target)}")
        if memory.access != "read_write":
            raise fail(statement.target.position, f"'{memory.name}' can only be read: it is a {memory.space} variable")
        if not is_constructible(target.type):
            raise fail(
                statement.target.position, f"{target.type} cannot be assigned; use atomicStore, or assign elements"
            )
        value = self.value(statement.value)
        if statement.operator:
            node = Binary(statement.position, statement.operator, statement.target, statement.value)
            _, value, result = self.combine(node, target, value)
            if result != target.type:
                raise fail(
                    statement.position, f"'{statement.operator}=' gives {result}, but this variable is {target.type}"
                )
        else:
            value = self.convert(value, target.type, "the value assigned")
        statement.target, statement.value = target.node, value.node

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

    def if_(self, statement: If) -> None:
        statement.condition = self.condition(statement.condition)
        self.block(statement.then)
        if statement.otherwise is not None:
            self.block(statement.otherwise)

    def for_(self, statement: For) -> None:
        if (
            statement.unrolled is not None
            and self.constant(statement.unrolled, "the condition of @unroll").type != BOOL
        ):
            raise fail(statement.position, "the condition of @unroll must be bool")
        self.scopes.stack.append({})
        if statement.initial is not None:
            self.statements[type(statement.initial)](statement.initial)
        if statement.condition is not None:
            statement.condition = self.condition(statement.condition)
        if statement.update is not None:
            self.statements[type(statement.update)](statement.update)
        self.nested("loop", statement.body)
        self.scopes.stack.pop()
        if statement.condition is None and not has_exit(statement.body):
            raise fail(statement.position, "this loop never ends; give it a condition, a break or a return")

    def while_(self, statement: While) -> None:
        statement.condition = self.condition(statement.condition)
        self.nested("loop", statement.body)

    def loop(self, statement: Loop) -> None:
        self.context.append("loop")
        self.scopes.stack.append({})
        self.sequence(statement.body.statements)
        hidden: dict[str, Binding] | None = None
        if has_continue(statement.body):
            hidden = self.scopes.stack.pop()  # a continue may have skipped declarations of the body
        self.context.append("continuing")
        if statement.continuing is not None:
            self.scopes.stack.append({})
            self.sequence(statement.continuing.statements)
            if statement.break_if is not None:
                statement.break_if = self.condition(statement.break_if)
            self.scopes.stack.pop()
        self.context.pop()
        if hidden is None:
            self.scopes.stack.pop()
        self.context.pop()
        if statement.break_if is None and not has_exit(statement.body):
            raise fail(statement.position, "this loop never ends; give it a break, a return or a 'break if'")

    def switch(self, statement: Switch) -> None:
        selector = self.value(statement.selector)
        common: Type | None = selector.type
        cases = [(case, [self.constant(node, "a case") for node in case.selectors]) for case in statement.cases]
        for operand in (operand for _, operands in cases for operand in operands):
            common = None if common is None else join(common, operand.type)
            if common is None:
                raise fail(operand.node.position, f"a case must be {selector.type}, but this is {operand.type}")
        type_ = concrete(common) if common is not None else selector.type
        if type_ not in CONCRETE_INTEGERS:
            raise fail(statement.selector.position, f"a switch is over i32 or u32, not {type_}")
        statement.selector = self.convert(selector, type_, "the selector").node
        seen: set[object] = set()
        for case, operands in cases:
            for operand in operands:
                operand = self.convert(operand, type_, "a case")
                if operand.value in seen:
                    raise fail(operand.node.position, f"case {operand.value} is given twice")
                seen.add(operand.value)
            case.selectors = [self.convert(operand, type_, "a case").node for operand in operands]
            self.nested("switch", case.body)

    def return_(self, statement: Return) -> None:
        assert self.function is not None
        expected = self.function.return_type
        if "continuing" in self.context:
            raise fail(statement.position, "a continuing block cannot return")
        if expected is None or statement.value is None:
            if (expected is None) != (statement.value is None):
                message = "returns nothing" if expected is None else f"must return {expected}"
                raise fail(statement.position, f"'{self.function.name}' {message}")
            return
        statement.value = self.convert(self.value(statement.value), expected, "the value returned").node

    def break_(self, statement: Break) -> None:
        if not self.context or self.context[-1] not in ("loop", "switch"):
            raise fail(statement.position, "a break must be in a loop or a switch")

    def continue_(self, statement: Continue) -> None:
        around = [context for context in self.context if context != "switch"]
        if not around or around[-1] != "loop":
            raise fail(statement.position, "a continue must be in the body of a loop")

    def call_statement(self, statement: CallStatement) -> None:
        name = statement.call.callee.name
        operand = self.call(statement.call)
        if operand is not None:
            statement.call.type = operand.type
        is_atomic = name.startswith("atomic") and name != "atomicLoad"
        if operand is not None and statement.call.kind != "function" and not is_atomic:
            raise fail(statement.position, f"the value of '{name}' must be used; write _ = {name}(...) to drop it")

    # The module as a whole.

    def check_call_graph(self, uses: dict[str, KeysView[str]]) -> None:
        """Refuse recursion."""
        done: set[str] = set()
        for name in uses:
            self.check_recursion(name, uses, done)

    def uses(self) -> dict[str, KeysView[str]]:
        """Return, by function, the names in it that are not locals, in the order of the source."""
        return {
            declaration.name: dict.fromkeys(reference.name for reference in module_references(declaration)).keys()
            for declaration in self.module.declarations
            if isinstance(declaration, Function)
        }

    def check_places(self) -> None:
        """Refuse two variables of an entry point with the same @group and @binding."""
        bindings = [
            declaration
            for declaration in self.module.declarations
            if isinstance(declaration, GlobalVariable) and declaration.attributes
        ]
        if len({self.binding_point(variable) for variable in bindings}) == len(bindings):
            return
        uses = self.uses()
        for declaration in self.module.declarations:
            if isinstance(declaration, Function) and declaration.attributes:
                reached = _reached(declaration.name, uses)
                self.check_bindings([binding for binding in bindings if binding.name in reached])

    def check_recursion(self, start: str, uses: dict[str, KeysView[str]], done: set[str]) -> None:
        """Search the calls from `start` depth first, and refuse a call of a function on the current path."""
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
                for callee in sorted(uses[name] & uses.keys()):
                    if callee in path:
                        names = list(path)
                        cycle = " calls ".join([*names[names.index(callee) :], callee])
                        raise fail(self.declared[callee].position, f"WGSL has no recursion: {cycle}")
                    work.append((callee, False))

    def check_bindings(self, bindings: list[GlobalVariable]) -> None:
        names: dict[tuple[int, int], str] = {}
        for variable in bindings:
            point = self.binding_point(variable)
            if point in names:
                raise fail(variable.position, f"'{variable.name}' and '{names[point]}' share one @group and @binding")
            names[point] = variable.name

    def binding_point(self, variable: GlobalVariable) -> tuple[int, int]:
        """Return the values of @group and @binding of a variable."""
        numbers = {a.name: self.constant_integer(a.arguments[0], "this") for a in variable.attributes}
        return numbers["group"], numbers["binding"]


def _reached(start: str, uses: dict[str, KeysView[str]]) -> set[str]:
    """Return all names that a function uses, directly or through functions it calls."""
    reached: set[str] = set()
    work = [start]
    while work:
        new = set(uses.get(work.pop(), ())) - reached
        reached |= new
        work += new
    return reached


def leaves(statement: Statement, jumps: bool = False) -> bool:
    """Return True if every path through a statement ends in a return (or, with `jumps`, in a break or continue).

    The strictest tools assume that a loop ends and control continues after it: write the return there.
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
    """Return the blocks of a statement that are not bodies of loops."""
    match statement:
        case Block():
            return [statement]
        case If(then=then, otherwise=otherwise):
            return [then] if otherwise is None else [then, otherwise]
        case Switch(cases=cases):
            return [case.body for case in cases]
    return []


def _has_break(block: Block) -> bool:
    """Return True if a break in the block leaves the loop or case whose body it is."""
    return any(
        isinstance(statement, Break)
        or (not isinstance(statement, Switch) and any(_has_break(inner) for inner in _children(statement)))
        for statement in block.statements
    )


def has_continue(block: Block) -> bool:
    """Return True if the block contains a continue of the loop around it."""
    return any(
        isinstance(statement, Continue) or any(has_continue(inner) for inner in _children(statement))
        for statement in block.statements
    )


def _has_return(block: Block) -> bool:
    return any(
        isinstance(statement, Return)
        or any(_has_return(inner) for inner in _children(statement))
        or (isinstance(statement, For | While | Loop) and _has_return(statement.body))
        for statement in block.statements
    )


def has_exit(body: Block) -> bool:
    """Return True if the body of a loop contains a break or return that leaves the loop."""
    return _has_break(body) or _has_return(body)
