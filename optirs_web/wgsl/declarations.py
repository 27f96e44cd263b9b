"""Checking at module scope: what every name stands for, in whatever order the module declares them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .builtins import BUILTIN_VALUES, BUILTINS
from .expressions import ExpressionChecker
from .memory import check_variable_type
from .scopes import Binding, Place, Scopes, fail, similar
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
MAX_PENDING = 30  # declarations that are resolved inside one another

_T = TypeVar("_T")
_Composite = TypeVar("_Composite", Array, Struct)
_SCALARS: dict[str, Scalar] = {"bool": BOOL, "i32": I32, "u32": U32, "f32": F32, "f16": F16}
_VECTORS = {"vec2": 2, "vec3": 3, "vec4": 4}


class DeclarationChecker(ExpressionChecker):
    """Types, constants, overrides, variables and signatures of one module."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module
        self.declared: dict[str, StructDeclaration | Alias | Constant | Override | GlobalVariable | Function] = {}
        self.bindings: dict[str, Binding] = {}
        self.types: dict[str, Type] = {}
        self.signatures: dict[str, tuple[list[Type], Type | None]] = {}
        self.pending: list[str] = []
        for one in module.declarations:
            self.add(one)

    def add(self, one: Declaration) -> None:
        """Note a declaration under its name, which must be new."""
        if isinstance(one, Import):
            raise fail(one.position, "this module imports others; link it before it is checked (optirs_web.wgsl.link)")
        if isinstance(one, ConstAssert):
            return
        if one.name in self.declared:
            earlier = self.declared[one.name].position
            raise fail(one.position, f"'{one.name}' is declared twice; the first is at {earlier}")
        if one.name in BUILTINS or one.name in ("bitcast", *MATRIX_FUNCTIONS):
            raise fail(one.position, f"'{one.name}' is a built-in function of WGSL; choose another name")
        self.declared[one.name] = one

    def check_declarations(self) -> None:
        """Resolve everything but the bodies of functions."""
        for one in self.module.declarations:
            match one:
                case StructDeclaration() | Alias():
                    self.declared_type(one, one.position)
                case Constant() | Override() | GlobalVariable():
                    self.module_binding(one.name, one.position)
                case Function():
                    self.signature(one, one.position)
                case ConstAssert():
                    self.check_assertion(one)

    def check_assertion(self, one: ConstAssert) -> None:
        """``const_assert``, here or in a function."""
        condition = self.constant(one.condition, "an assertion")
        if condition.type != BOOL:
            raise fail(one.condition.position, f"an assertion must be bool, but this is {condition.type}")
        if not condition.value:
            raise fail(one.position, "this const_assert does not hold")

    def inside(self, name: str, position: Position, rule: Callable[[], _T]) -> _T:
        """Resolve a declaration of the module, whatever function is being checked at the moment."""
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
        """A declaration of the module."""
        return self.declared.get(name)

    def module_names(self) -> list[str]:
        """All that it declares."""
        return list(self.declared)

    def require_f16(self, position: Position) -> None:
        """Refuse f16 without ``enable f16;``."""
        if "f16" not in self.module.enables:
            raise fail(position, "f16 needs the line `enable f16;` at the top of the module")

    # Values.

    def module_binding(self, name: str, position: Position) -> Binding:
        """What a constant or variable of the module stands for; resolved when it is first asked for."""
        if name not in self.bindings:
            one = self.declared.get(name)
            if isinstance(one, Function) or (one is None and name in BUILTINS):
                raise fail(position, f"'{name}' is a function; call it")
            if isinstance(one, StructDeclaration | Alias) or name in PREDECLARED_TYPES:
                raise fail(position, f"'{name}' is a type; a value of it is {name}(...)")
            if one is None:
                raise self.unknown(name, position)
            rule = self.variable if isinstance(one, GlobalVariable) else self.constant_declaration
            self.bindings[name] = self.inside(name, position, lambda: rule(one))  # type: ignore[arg-type]
        return self.bindings[name]

    def constant_declaration(self, one: Constant | Override) -> Binding:
        """``const`` and ``override``."""
        wanted = None if one.type_name is None else self.resolve(one.type_name)
        if one.value is None:
            assert wanted is not None
            one.type = self.check_override_type(one, wanted)
            return Binding("override", one.type)
        operand = self.constant(one.value, f"the value of '{one.name}'")
        if wanted is None and isinstance(one, Override):
            wanted = concrete(operand.type)
        if wanted is not None:
            operand = self.convert(operand, wanted, f"'{one.name}'")
            one.value = operand.node
        one.type = operand.type
        if isinstance(one, Override):
            self.check_override_type(one, operand.type)
            return Binding("override", operand.type, operand.value)
        return Binding("const", operand.type, operand.value)

    def check_override_type(self, one: Override, type_: Type) -> Type:
        """Overrides are scalars."""
        if not isinstance(type_, Scalar):
            raise fail(one.position, f"an override is a scalar, but '{one.name}' is {type_}")
        return type_

    def variable(self, one: GlobalVariable) -> Binding:
        """``var<space>``."""
        one.type = self.resolve(one.type_name)
        check_variable_type(one, one.type)
        self.check_binding_attributes(one)
        if one.value is not None:
            value = self.constant(one.value, f"the initial value of '{one.name}'")
            one.value = self.convert(value, one.type, f"'{one.name}'").node
        return Binding(one.space, one.type, None, Place(one.name, one.space, one.access))

    def check_binding_attributes(self, one: GlobalVariable) -> None:
        """Buffers have @group and @binding, other variables have neither."""
        is_resource = one.space in ("storage", "uniform")
        names = [attribute.name for attribute in one.attributes]
        for attribute in one.attributes:
            if attribute.name not in ("group", "binding") or not is_resource:
                raise fail(attribute.position, f"@{attribute.name} does not belong to var<{one.space}>")
            number = self.constant_integer(attribute.arguments[0], f"@{attribute.name}")
            if not 0 <= number < 65536:
                raise fail(attribute.position, f"@{attribute.name}({number}) is out of range")
        if is_resource and sorted(names) != ["binding", "group"]:
            raise fail(one.position, f"var<{one.space}> '{one.name}' needs @group(...) @binding(...)")

    # Types.

    def resolve(self, name: TypeName) -> Type:
        """The type written there."""
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
        one = self.declared.get(name.name)
        if not isinstance(one, StructDeclaration | Alias):
            if one is not None:
                raise fail(name.position, f"'{name.name}' is not a type")
            known = [*PREDECLARED_TYPES, *self.declared]
            raise fail(name.position, f"there is no type '{name.name}'{similar(name.name, known)}")
        return self.declared_type(one, name.position)

    def only_argument(self, name: TypeName) -> TypeName:
        """The one argument of ``vec3<T>`` and ``atomic<T>``."""
        if len(name.arguments) != 1 or not isinstance(name.arguments[0], TypeName):
            raise fail(name.position, f"'{name.name}' needs the type of its elements: {name.name}<f32> or the like")
        return name.arguments[0]

    def scalar_named(self, name: TypeName, what: str) -> Scalar:
        """A type that must be a scalar."""
        type_ = self.resolve(name)
        if not isinstance(type_, Scalar):
            raise fail(name.position, f"the elements of {what} are scalars, not {type_}")
        return type_

    def array(self, name: TypeName) -> Array:
        """``array<T, N>`` and ``array<T>``."""
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
        """Refuse types that nest too deeply."""
        if nesting(type_) > MAX_TYPE_NESTING:
            raise fail(position, f"types nest at most {MAX_TYPE_NESTING} deep")
        return type_

    def declared_type(self, one: StructDeclaration | Alias, position: Position) -> Type:
        """The type that a declaration names."""
        if one.name not in self.types:
            rule = self.struct if isinstance(one, StructDeclaration) else self.alias
            self.types[one.name] = self.inside(one.name, position, lambda: rule(one))  # type: ignore[arg-type]
        return self.types[one.name]

    def alias(self, one: Alias) -> Type:
        """``alias name = type;``."""
        return self.resolve(one.type_name)

    def struct(self, one: StructDeclaration) -> Struct:
        """A struct, small enough that walking over its members takes no time."""
        members: list[StructMember] = []
        count = 0
        for field in one.fields:
            type_ = self.resolve(field.type_name)
            if any(member.name == field.name for member in members):
                raise fail(field.position, f"struct '{one.name}' has two members '{field.name}'")
            if isinstance(type_, Struct) and is_runtime_sized(type_):
                raise fail(field.position, f"{type_} has no size, so it cannot be a member; only array<T> can")
            if is_runtime_sized(type_) and field is not one.fields[-1]:
                raise fail(field.position, f"'{field.name}' has no size, so it must be the last member")
            members.append(StructMember(field.name, type_))
            count += _member_count(type_)
        if count > MAX_STRUCT_MEMBERS:
            raise fail(
                one.position, f"struct '{one.name}' has {count} members in all; {MAX_STRUCT_MEMBERS} are allowed"
            )
        type_ = Struct(one.name, tuple(members))
        self.limited(type_, one.position)
        if scalar_count(type_) > MAX_ARRAY_SCALARS:
            raise fail(one.position, f"struct '{one.name}' is too large")
        one.type = type_
        return type_

    # Functions.

    def signature(self, function: Function, position: Position) -> tuple[list[Type], Type | None]:
        """Parameters and result; entry points have none to call."""
        if any(attribute.name == "compute" for attribute in function.attributes) and position != function.position:
            raise fail(position, f"'{function.name}' is an entry point and cannot be called")
        if function.name not in self.signatures:
            rule = self.function_signature
            self.signatures[function.name] = self.inside(function.name, position, lambda: rule(function))
        return self.signatures[function.name]

    def function_signature(self, one: Function) -> tuple[list[Type], Type | None]:
        """Attributes, parameters and result."""
        names = {attribute.name: attribute for attribute in one.attributes}
        for name, attribute in names.items():
            if name not in ("compute", "workgroup_size"):
                raise fail(attribute.position, f"@{name} does not belong to a function")
        if ("compute" in names) != ("workgroup_size" in names):
            raise fail(one.position, "an entry point has both @compute and @workgroup_size(...)")
        if "compute" in names:
            self.check_entry_point(one, names["workgroup_size"])
        for parameter in one.parameters:
            parameter.type = self.resolve(parameter.type_name)
            if not is_constructible(parameter.type):
                raise fail(parameter.position, f"{parameter.type} cannot be passed; name the variable in the function")
            self.check_parameter_attributes(parameter, "compute" in names)
        if one.return_type_name is not None:
            one.return_type = self.resolve(one.return_type_name)
            if not is_constructible(one.return_type):
                raise fail(one.return_type_name.position, f"{one.return_type} cannot be returned")
        return [parameter.type for parameter in one.parameters if parameter.type is not None], one.return_type

    def check_entry_point(self, one: Function, size: Attribute) -> None:
        """Its workgroup size is known, and it returns nothing."""
        for argument in size.arguments:
            if self.constant_integer(argument, "a workgroup size") < 1:
                raise fail(argument.position, "a workgroup size is at least 1")
        if one.return_type_name is not None:
            raise fail(one.return_type_name.position, "a compute entry point returns nothing; write to a buffer")

    def check_parameter_attributes(self, parameter: Parameter, is_entry: bool) -> None:
        """@builtin belongs to entry points, and there to all."""
        for attribute in parameter.attributes:
            if attribute.name != "builtin" or not is_entry:
                raise fail(attribute.position, f"@{attribute.name} does not belong to this parameter")
            name = attribute.arguments[0].name if isinstance(attribute.arguments[0], Name) else "?"
            wanted = BUILTIN_VALUES.get(name)
            if wanted is None:
                known = ", ".join(BUILTIN_VALUES)
                raise fail(attribute.position, f"there is no @builtin({name}) in the subset; there are {known}")
            if parameter.type != wanted:
                raise fail(parameter.type_name.position, f"@builtin({name}) is {wanted}, not {parameter.type}")
        if is_entry and not parameter.attributes:
            raise fail(parameter.position, "a parameter of an entry point needs @builtin(...)")


def _member_count(type_: Type) -> int:
    """How many members lie in a type, those of nested structs counted as often as they occur."""
    match type_:
        case Array(element=element):
            return _member_count(element)
        case Struct(members=members):
            return sum(_member_count(member.type) for member in members)
    return 1
