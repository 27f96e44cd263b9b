"""Checks the declarations of a module, and resolves its names in whatever order they are declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .builtins import BUILTIN_VALUES, BUILTINS
from .expressions import ExpressionChecker
from .memory import check_variable_type
from .scopes import Binding, Memory, Scopes, fail, similar
from .syntax import (
    Alias,
    Attribute,
    Constant,
    ConstAssert,
    Declaration,
    Function,
    GlobalVariable,
    Import,
    Module,
    Name,
    Override,
    Parameter,
    Position,
    StructDeclaration,
    TypeName,
)
from .typerules import concrete, is_constructible, is_runtime_sized, nesting, scalar_count
from .types import BOOL, F16, F32, I32, U32, Array, Atomic, Scalar, Struct, StructMember, Type, Vector
from .vocabulary import MATRIX_FUNCTIONS, MATRIX_TYPES, PREDECLARED_TYPES, VECTOR_ALIASES

__all__ = ["DeclarationChecker"]

MAX_TYPE_NESTING = 15  # WGSL's own limit
MAX_STRUCT_MEMBERS = 1023  # likewise; counted over nested structs here
MAX_ARRAY_SCALARS = 2**30 - 1
MAX_PENDING = 30  # nesting of declarations that are resolved for one another

_T = TypeVar("_T")
_Composite = TypeVar("_Composite", Array, Struct)
_SCALARS: dict[str, Scalar] = {"bool": BOOL, "i32": I32, "u32": U32, "f32": F32, "f16": F16}
_VECTORS = {"vec2": 2, "vec3": 3, "vec4": 4}


class DeclarationChecker(ExpressionChecker):
    """Checks types, constants, overrides, variables and signatures of a module."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module
        self.declared: dict[str, StructDeclaration | Alias | Constant | Override | GlobalVariable | Function] = {}
        self.bindings: dict[str, Binding] = {}
        self.types: dict[str, Type] = {}
        self.signatures: dict[str, tuple[list[Type], Type | None]] = {}
        self.pending: list[str] = []
        for declaration in module.declarations:
            self.add(declaration)

    def add(self, declaration: Declaration) -> None:
        """Register a declaration under its name, which must be new."""
        if isinstance(declaration, Import):
            raise fail(
                declaration.position, "this module imports others; link it before it is checked (optirs_web.wgsl.link)"
            )
        if isinstance(declaration, ConstAssert):
            return
        if declaration.name in self.declared:
            earlier = self.declared[declaration.name].position
            raise fail(declaration.position, f"'{declaration.name}' is declared twice; the first is at {earlier}")
        if declaration.name in BUILTINS or declaration.name in ("bitcast", *MATRIX_FUNCTIONS):
            raise fail(
                declaration.position, f"'{declaration.name}' is a built-in function of WGSL; choose another name"
            )
        self.declared[declaration.name] = declaration

    def check_declarations(self) -> None:
        """Check everything except the bodies of functions."""
        for declaration in self.module.declarations:
            match declaration:
                case StructDeclaration() | Alias():
                    self.declared_type(declaration, declaration.position)
                case Constant() | Override() | GlobalVariable():
                    self.module_binding(declaration.name, declaration.position)
                case Function():
                    self.signature(declaration, declaration.position)
                case ConstAssert():
                    self.check_assertion(declaration)

    def check_assertion(self, assertion: ConstAssert) -> None:
        """Check a ``const_assert`` of the module or of a function."""
        condition = self.constant(assertion.condition, "an assertion")
        if condition.type != BOOL:
            raise fail(assertion.condition.position, f"an assertion must be bool, but this is {condition.type}")
        if not condition.value:
            raise fail(assertion.position, "this const_assert does not hold")

    def inside(self, name: str, position: Position, rule: Callable[[], _T]) -> _T:
        """Return the result of `rule`, which resolves a declaration outside the scopes of the current function."""
        if name in self.pending:
            raise fail(position, f"'{name}' is declared in terms of itself")
        if len(self.pending) >= MAX_PENDING:
            raise fail(position, "declarations refer to later ones too deeply; reorder them")
        scopes, self.scopes = self.scopes, Scopes()
        self.pending.append(name)
        result = rule()
        self.pending.pop()
        self.scopes = scopes
        return result

    # Names.

    def module_name(self, name: str) -> object | None:
        """Return the module's declaration of that name, or None."""
        return self.declared.get(name)

    def module_names(self) -> list[str]:
        """Return all names that the module declares."""
        return list(self.declared)

    def require_f16(self, position: Position) -> None:
        """Refuse f16 without ``enable f16;``."""
        if "f16" not in self.module.enables:
            raise fail(position, "f16 needs the line `enable f16;` at the top of the module")

    # Values.

    def module_binding(self, name: str, position: Position) -> Binding:
        """Return the binding of a constant or variable of the module, which is resolved on first use."""
        if name not in self.bindings:
            declaration = self.declared.get(name)
            if isinstance(declaration, Function) or (declaration is None and name in BUILTINS):
                raise fail(position, f"'{name}' is a function; call it")
            if isinstance(declaration, StructDeclaration | Alias) or name in PREDECLARED_TYPES:
                raise fail(position, f"'{name}' is a type; a value of it is {name}(...)")
            if declaration is None:
                raise self.unknown(name, position)
            rule = self.variable if isinstance(declaration, GlobalVariable) else self.constant_declaration
            self.bindings[name] = self.inside(name, position, lambda: rule(declaration))  # type: ignore[arg-type]
        return self.bindings[name]

    def constant_declaration(self, declaration: Constant | Override) -> Binding:
        """Check a ``const`` or ``override``."""
        expected = None if declaration.type_name is None else self.resolve(declaration.type_name)
        if declaration.value is None:
            assert expected is not None
            declaration.type = self.check_override_type(declaration, expected)
            return Binding("override", declaration.type)
        operand = self.constant(declaration.value, f"the value of '{declaration.name}'")
        if expected is None and isinstance(declaration, Override):
            expected = concrete(operand.type)
        if expected is not None:
            operand = self.convert(operand, expected, f"'{declaration.name}'")
            declaration.value = operand.node
        declaration.type = operand.type
        if isinstance(declaration, Override):
            self.check_override_type(declaration, operand.type)
            return Binding("override", operand.type, operand.value)
        return Binding("const", operand.type, operand.value)

    def check_override_type(self, override: Override, type_: Type) -> Type:
        """Return the type of an override, which must be a scalar."""
        if not isinstance(type_, Scalar):
            raise fail(override.position, f"an override is a scalar, but '{override.name}' is {type_}")
        return type_

    def variable(self, variable: GlobalVariable) -> Binding:
        """Check a ``var<space>``."""
        variable.type = self.resolve(variable.type_name)
        check_variable_type(variable, variable.type)
        self.check_binding_attributes(variable)
        if variable.value is not None:
            value = self.constant(variable.value, f"the initial value of '{variable.name}'")
            variable.value = self.convert(value, variable.type, f"'{variable.name}'").node
        return Binding(variable.space, variable.type, None, Memory(variable.name, variable.space, variable.access))

    def check_binding_attributes(self, variable: GlobalVariable) -> None:
        """Check that a buffer has @group and @binding, and any other variable neither."""
        is_resource = variable.space in ("storage", "uniform")
        names = [attribute.name for attribute in variable.attributes]
        for attribute in variable.attributes:
            if attribute.name not in ("group", "binding") or not is_resource:
                raise fail(attribute.position, f"@{attribute.name} does not belong to var<{variable.space}>")
            number = self.constant_integer(attribute.arguments[0], f"@{attribute.name}")
            if not 0 <= number < 65536:
                raise fail(attribute.position, f"@{attribute.name}({number}) is out of range")
        if is_resource and sorted(names) != ["binding", "group"]:
            raise fail(variable.position, f"var<{variable.space}> '{variable.name}' needs @group(...) @binding(...)")

    # Types.

    def resolve(self, name: TypeName) -> Type:
        """Return the type that a type name refers to."""
        if name.name in _SCALARS:
            if name.name == "f16":
                self.require_f16(name.position)
            return _SCALARS[name.name]
        if name.name in VECTOR_ALIASES:
            size, scalar = VECTOR_ALIASES[name.name]
            return Vector(size, self.scalar_named(TypeName(name.position, scalar), "a vector"))
        if name.name in _VECTORS:
            return Vector(_VECTORS[name.name], self.scalar_named(self.only_argument(name), "a vector"))
        if name.name == "atomic":
            element = self.scalar_named(self.only_argument(name), "an atomic")
            if element not in (I32, U32):
                raise fail(name.position, f"an atomic is of i32 or u32, not {element}")
            return Atomic(element)
        if name.name == "array":
            return self.array(name)
        if name.name in MATRIX_TYPES:
            from .subgroup_matrices import matrix_named  # which few modules need

            return matrix_named(name, self)
        declaration = self.declared.get(name.name)
        if not isinstance(declaration, StructDeclaration | Alias):
            if declaration is not None:
                raise fail(name.position, f"'{name.name}' is not a type")
            known = [*PREDECLARED_TYPES, *self.declared]
            raise fail(name.position, f"there is no type '{name.name}'{similar(name.name, known)}")
        return self.declared_type(declaration, name.position)

    def only_argument(self, name: TypeName) -> TypeName:
        """Return the single argument of ``vec3<T>`` or ``atomic<T>``."""
        if len(name.arguments) != 1 or not isinstance(name.arguments[0], TypeName):
            raise fail(name.position, f"'{name.name}' needs the type of its elements: {name.name}<f32> or the like")
        return name.arguments[0]

    def scalar_named(self, name: TypeName, role: str) -> Scalar:
        """Return a type that must be a scalar."""
        type_ = self.resolve(name)
        if not isinstance(type_, Scalar):
            raise fail(name.position, f"the elements of {role} are scalars, not {type_}")
        return type_

    def array(self, name: TypeName) -> Array:
        """Return the type ``array<T, N>`` or ``array<T>``."""
        if not name.arguments or not isinstance(name.arguments[0], TypeName):
            raise fail(name.position, "'array' needs the type of its elements: array<f32, 16> or the like")
        element = self.resolve(name.arguments[0])
        if is_runtime_sized(element):
            raise fail(name.position, f"the elements of an array must have a size; {element} has none")
        if len(name.arguments) == 1:
            return self.limited(Array(element, None), name.position)
        size = name.arguments[1]
        assert not isinstance(size, TypeName)
        count = self.constant_integer(size, "the size of an array")
        if count < 1 or count * scalar_count(element) > MAX_ARRAY_SCALARS:
            raise fail(size.position, f"an array cannot have {count} elements")
        return self.limited(Array(element, count), name.position)

    def limited(self, type_: _Composite, position: Position) -> _Composite:
        """Return a type, which must not be nested too deeply."""
        if nesting(type_) > MAX_TYPE_NESTING:
            raise fail(position, f"types nest at most {MAX_TYPE_NESTING} deep")
        return type_

    def declared_type(self, declaration: StructDeclaration | Alias, position: Position) -> Type:
        """Return the type that a declaration defines."""
        if declaration.name not in self.types:
            rule = self.struct if isinstance(declaration, StructDeclaration) else self.alias
            self.types[declaration.name] = self.inside(declaration.name, position, lambda: rule(declaration))  # type: ignore[arg-type]
        return self.types[declaration.name]

    def alias(self, declaration: Alias) -> Type:
        """Check ``alias name = type;``."""
        return self.resolve(declaration.type_name)

    def struct(self, declaration: StructDeclaration) -> Struct:
        """Check a struct; the number of its members is limited, so that going through them is fast."""
        members: list[StructMember] = []
        count = 0
        for field in declaration.fields:
            type_ = self.resolve(field.type_name)
            if any(member.name == field.name for member in members):
                raise fail(field.position, f"struct '{declaration.name}' has two members '{field.name}'")
            if isinstance(type_, Struct) and is_runtime_sized(type_):
                raise fail(field.position, f"{type_} has no size, so it cannot be a member; only array<T> can")
            if is_runtime_sized(type_) and field is not declaration.fields[-1]:
                raise fail(field.position, f"'{field.name}' has no size, so it must be the last member")
            members.append(StructMember(field.name, type_))
            count += _member_count(type_)
        if count > MAX_STRUCT_MEMBERS:
            raise fail(
                declaration.position,
                f"struct '{declaration.name}' has {count} members in all; {MAX_STRUCT_MEMBERS} are allowed",
            )
        type_ = Struct(declaration.name, tuple(members))
        self.limited(type_, declaration.position)
        if scalar_count(type_) > MAX_ARRAY_SCALARS:
            raise fail(declaration.position, f"struct '{declaration.name}' is too large")
        declaration.type = type_
        return type_

    # Functions.

    def signature(self, function: Function, position: Position) -> tuple[list[Type], Type | None]:
        """Return the types of a function's parameters and result; an entry point cannot be called."""
        if any(attribute.name == "compute" for attribute in function.attributes) and position != function.position:
            raise fail(position, f"'{function.name}' is an entry point and cannot be called")
        if function.name not in self.signatures:
            rule = self.function_signature
            self.signatures[function.name] = self.inside(function.name, position, lambda: rule(function))
        return self.signatures[function.name]

    def function_signature(self, function: Function) -> tuple[list[Type], Type | None]:
        """Check the attributes, the parameters and the result of a function."""
        names = {attribute.name: attribute for attribute in function.attributes}
        for name, attribute in names.items():
            if name not in ("compute", "workgroup_size"):
                raise fail(attribute.position, f"@{name} does not belong to a function")
        if ("compute" in names) != ("workgroup_size" in names):
            raise fail(function.position, "an entry point has both @compute and @workgroup_size(...)")
        if "compute" in names:
            self.check_entry_point(function, names["workgroup_size"])
        for parameter in function.parameters:
            parameter.type = self.resolve(parameter.type_name)
            if not is_constructible(parameter.type):
                raise fail(parameter.position, f"{parameter.type} cannot be passed; name the variable in the function")
            self.check_parameter_attributes(parameter, "compute" in names)
        if function.return_type_name is not None:
            function.return_type = self.resolve(function.return_type_name)
            if not is_constructible(function.return_type):
                raise fail(function.return_type_name.position, f"{function.return_type} cannot be returned")
        return [parameter.type for parameter in function.parameters if parameter.type is not None], function.return_type

    def check_entry_point(self, function: Function, size: Attribute) -> None:
        """Check that an entry point has a constant workgroup size and returns nothing."""
        for argument in size.arguments:
            if self.constant_integer(argument, "a workgroup size") < 1:
                raise fail(argument.position, "a workgroup size is at least 1")
        if function.return_type_name is not None:
            raise fail(function.return_type_name.position, "a compute entry point returns nothing; write to a buffer")

    def check_parameter_attributes(self, parameter: Parameter, is_entry: bool) -> None:
        """Check that the parameter has @builtin if it belongs to an entry point, and otherwise no attribute."""
        for attribute in parameter.attributes:
            if attribute.name != "builtin" or not is_entry:
                raise fail(attribute.position, f"@{attribute.name} does not belong to this parameter")
            name = attribute.arguments[0].name if isinstance(attribute.arguments[0], Name) else "?"
            expected = BUILTIN_VALUES.get(name)
            if expected is None:
                known = ", ".join(BUILTIN_VALUES)
                raise fail(attribute.position, f"there is no @builtin({name}) in the subset; there are {known}")
            if parameter.type != expected:
                raise fail(parameter.type_name.position, f"@builtin({name}) is {expected}, not {parameter.type}")
        if is_entry and not parameter.attributes:
            raise fail(parameter.position, "a parameter of an entry point needs @builtin(...)")


def _member_count(type_: Type) -> int:
    """Return the number of members in a type; those of nested structs count as often as they occur."""
    match type_:
        case Array(element=element):
            return _member_count(element)
        case Struct(members=members):
            return sum(_member_count(member.type) for member in members)
    return 1
