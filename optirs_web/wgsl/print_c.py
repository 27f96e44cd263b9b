"""Prints a complete kernel as OpenCL C or CUDA C++, by the tables in `c_dialects`.

The text computes the same as the WGSL, bit for bit where WGSL defines the bits: integers wrap and may be divided by
zero, shifts use five bits, conversions saturate, workgroup memory is initialized to zero, and an index out of bounds
selects the last element. Floats are IEEE's: compile it without contraction and fast mathematics (`COMPILER_OPTIONS`).

`c_interface` describes the kernel's arguments. Variables of the module become parameters of the functions that use
them, since OpenCL declares buffers and workgroup memory in kernels only.
"""

from __future__ import annotations

import math
from typing import Literal as OneOf

from ..errors import UnsupportedError
from . import constants
from .builtins import needs_subgroups
from .c_constants import Values
from .c_dialects import C_DIALECTS
from .c_effects import Effects
from .c_expressions import Expressions
from .c_interface import KERNEL, Argument, Interface, interface_of, runtime_array
from .c_names import Names, Types
from .c_statements import INDENT, Statements
from .constants import Value
from .print_wgsl import refuse_subgroup_matrices
from .syntax import Attribute, Call, Constant, Function, GlobalVariable, Module, Name, Parameter, Position
from .tree import walk
from .typerules import is_abstract, is_host_shareable
from .types import Array, Scalar, Struct, Type, Vector, size_of

__all__ = ["COMPILER_OPTIONS", "KERNEL", "Argument", "Interface", "interface_of", "print_c", "uses_subgroups"]

COMPILER_OPTIONS = {
    "opencl": ("-cl-std=CL1.2",),
    "opencl-subgroups": ("-cl-std=CL3.0",),
    "cuda": ("--fmad=false", "--std=c++17"),
}
"""The options of each dialect's compiler, with which floats are computed as written."""

_WIDTH = 110


def print_c(
    module: Module, dialect: OneOf["opencl", "opencl-subgroups", "cuda"] = "opencl", robust: bool = True
) -> str:
    """Return the text of a kernel; the same module gives the same text.

    Args:
        module: checked, with one entry point; see `Kernel.module`.
        dialect: "opencl" for OpenCL C 1.2, where each invocation is a subgroup; "opencl-subgroups" for OpenCL C 3.0
            with Khronos' extensions for subgroups; "cuda" for CUDA C++ (NVRTC).
        robust: limit indices to the bounds of arrays, as WGSL does; False for kernels known to stay within them.

    Raises:
        ShaderError: the kernel has subgroup matrices.
        UnsupportedError: one operand of an expression changes a variable that another reads; or a CUDA kernel with
            subgroups has workgroups that are not a multiple of a warp.

    Example:
        >>> from optirs_web.runtime.map_kernels import elementwise
        >>> print(print_c(elementwise("relu", "relu", ("tensor",), 0).module).splitlines()[0])
        // <generated relu> in OpenCL C 1.2, printed by optirs_web.
    """
    refuse_subgroup_matrices(module, "OpenCL C and CUDA C++ as printed here")
    return _Printer(module, dialect, robust).text()


def uses_subgroups(module: Module) -> bool:
    """Return True if a kernel uses subgroup functions, or the index or size of a subgroup."""

    def uses(node: object) -> bool:
        if isinstance(node, Call):
            return node.kind == "builtin" and needs_subgroups(node.callee.name)
        values = node.arguments if isinstance(node, Attribute) and node.name == "builtin" else ()
        return any(isinstance(value, Name) and needs_subgroups(value.name) for value in values)

    return any(map(uses, walk(module.declarations)))


class _Printer:
    def __init__(self, module: Module, dialect: str, robust: bool) -> None:
        self.module = module
        self.dialect = C_DIALECTS[dialect]
        self.values = Values(module)
        self.interface = interface_of(module)
        self.names = Names(self.dialect)
        self.types = Types(module, self.dialect, self.names)
        self.effects = Effects(module)
        self.expressions = Expressions(self.dialect, self.names, self.types, self.effects, robust, module.file)
        self.statements = Statements(self.expressions)
        self.variables = {
            declaration.name: declaration
            for declaration in module.declarations
            if isinstance(declaration, GlobalVariable)
        }
        self.functions = {
            declaration.name: declaration for declaration in module.declarations if isinstance(declaration, Function)
        }
        builtins = {
            node.callee.name
            for node in walk(list(self.functions.values()))
            if isinstance(node, Call) and node.kind == "builtin"
        }
        self.has_barriers = any(name.endswith(("Barrier", "UniformLoad")) for name in builtins)

    def text(self) -> str:
        """Return the complete text."""
        for variable in self.variables.values():
            self.expressions.declare(variable, runtime_array(variable.type) is not None)
        for name in self.functions:
            self.names.declare(name, "function")
        named = [
            self.constant(declaration) for declaration in self.module.declarations if isinstance(declaration, Constant)
        ]
        functions = [self.function(function) for function in self.in_order()]
        operations, definitions = self.expressions.operations, self.types.definitions
        derived = list(operations.functions.values())
        helpers = operations.helpers("".join((*functions, *derived, *definitions.values())))
        early = [operations.helper(name) for name in helpers if name in self.dialect.early]
        late = [operations.helper(name) for name in helpers if name not in self.dialect.early]
        self.check_warps()
        head = f"// {self.module.file} in {self.dialect.name}, printed by optirs_web.\n{self.dialect.header}"
        groups = ["".join((head, *early, *definitions.values())), "".join(named), "".join((*late, *derived))]
        return "\n".join((*filter(None, groups), *functions))

    def check_warps(self) -> None:
        """Refuse workgroups with incomplete subgroups, as all invocations of a subgroup take part in its functions."""
        x, y, z = self.interface.workgroup_size
        if x * y * z % self.dialect.subgroup and uses_subgroups(self.module):
            raise UnsupportedError(
                f"{self.module.file}: subgroups have {self.dialect.subgroup} invocations in {self.dialect.name}, so a "
                f"workgroup has a multiple of that, not {x * y * z}"
            )

    def in_order(self) -> list[Function]:
        """Return the functions, each after those that it calls."""
        ordered: dict[str, Function] = {}

        def add(function: Function) -> None:
            for node in walk(function.body):
                if isinstance(node, Call) and node.kind == "function" and node.callee.name not in ordered:
                    add(self.functions[node.callee.name])
            ordered.setdefault(function.name, function)

        for function in self.functions.values():
            add(function)
        return list(ordered.values())

    # Declarations.

    def constant(self, constant: Constant) -> str:
        """Return the definition of a constant; "" for an abstract one, whose value is in its uses."""
        type_ = constant.type
        if type_ is None or is_abstract(type_):
            return ""
        value = self.initial(self.values.of(constant.value), type_)
        name = self.names.declare(constant.name, "file")
        space = self.dialect.constant if isinstance(type_, Scalar) else self.dialect.table
        return f"{space} {self.types.name(type_)} {name} = {value};\n"

    def initial(self, value: Value, type_: Type) -> str:
        """Return a value as the initializer of a variable."""
        if not isinstance(value, tuple):
            return self.expressions.text(constants.literal(value, type_, Position(self.module.file, 1, 1)))
        if isinstance(type_, Struct):
            parts = [self.initial(part, member.type) for part, member in zip(value, type_.members, strict=True)]
            return f"{{{', '.join(parts)}}}"
        assert isinstance(type_, Vector | Array)
        parts = [self.initial(part, type_.element) for part in value]
        if self.types.is_own(type_):
            return f"({self.types.name(type_)})({', '.join(parts)})"
        if isinstance(type_, Array) and self.types.has_cell(type_.element):
            parts = [f"{{{part}}}" for part in parts]
        return f"{{{{{', '.join(parts)}}}}}"

    def function(self, function: Function) -> str:
        """Return a function or the kernel."""
        self.names.scopes.append({})
        if function.attributes:
            head, start = self.kernel_head(), [f"{INDENT}{line}" for line in self.kernel_start(function)]
        else:
            head, start = self.function_head(function), []
        body = self.statements.sequence(function.body.statements)
        self.names.scopes.pop()
        return "\n".join((f"{head} {{", *start, *body, "}\n"))

    def function_head(self, function: Function) -> str:
        """Return the head of a function: its own parameters, then the variables of the module that it needs."""
        result = "void" if function.return_type is None else self.types.name(function.return_type)
        parameters = [
            f"{self.types.name(_checked_type(parameter))} {self.names.local(parameter.name)}"
            for parameter in function.parameters
        ]
        needed = [self.variables[name] for name in self.effects.needs(function.name)]
        for variable in needed:
            parameters += self.parameters(variable)
        before = (
            self.dialect.sharing if any(variable.space == "workgroup" for variable in needed) else self.dialect.function
        )
        return _head(f"{before} {result} {self.names.module[function.name]}", parameters or ["void"])

    def parameters(self, declaration: GlobalVariable) -> list[str]:
        """Return the parameters for a variable of the module: a pointer, or the uniform by value; and its length."""
        variable = self.expressions.variables[declaration.name]
        if declaration.space == "uniform":
            return [f"const {self.types.name(_checked_type(declaration))} {variable.name}"]
        target = f"{self.dialect.spaces[declaration.space]}{self.pointed(declaration)}"
        pointer = f"{target} *{self.restrict(declaration)}{variable.name}"
        return [pointer, f"const u32 {variable.length}"] if variable.length else [pointer]

    def pointed(self, variable: GlobalVariable) -> str:
        """Return the type to which a pointer to a variable points, without its address space."""
        type_ = _checked_type(variable)
        is_runtime = isinstance(type_, Array) and type_.count is None
        name = self.types.cell(type_.element) if is_runtime and isinstance(type_, Array) else self.types.name(type_)
        return f"const {name}" if variable.space == "storage" and variable.access == "read" else name

    def restrict(self, variable: GlobalVariable) -> str:
        """Return the qualifier of a pointer that no other aliases; "" if other invocations may write between barriers.

        WebGPU does not bind memory twice if it is written.
        """
        is_alone = variable.space == "storage" and (variable.access == "read" or not self.has_barriers)
        return self.dialect.restrict if is_alone else ""

    # The kernel.

    def kernel_head(self) -> str:
        """Return the head of the kernel, with the arguments that `interface_of` lists."""
        x, y, z = self.interface.workgroup_size
        parameters = []
        for argument in self.interface.arguments:
            printed = self.parameters(self.variables[argument.name])
            parameters.append(printed[1] if argument.kind == "length" else printed[0])
        before = self.dialect.kernel.format(x=x, y=y, z=z, invocations=x * y * z)
        return _head(f"{before} {KERNEL}", parameters or ["void"])

    def kernel_start(self, function: Function) -> list[str]:
        """Return the declarations of built-in values and variables, and the initialization of workgroup memory."""
        lines = [self.builtin_value(parameter) for parameter in function.parameters]
        for variable in self.variables.values():
            if variable.space == "private":
                zero = self.dialect.zero
                value = (
                    zero
                    if variable.value is None
                    else self.initial(self.values.of(variable.value), _checked_type(variable))
                )
                lines.append(f"{self.pointed(variable)} {self.names.module[variable.name]}[1] = {{{value}}};")
        shared = [variable for variable in self.variables.values() if variable.space == "workgroup"]
        if not shared:
            return lines
        lines += [
            f"{self.dialect.shared}{self.pointed(variable)} {self.names.module[variable.name]}[1];"
            for variable in shared
        ]
        lines.append(f"const u32 _index = {self.index_in_workgroup()};")
        lines += [self.cleared(variable) for variable in shared]
        return [*lines, f"{self.expressions.operations.row('workgroupBarrier', [])};"]

    def cleared(self, variable: GlobalVariable) -> str:
        """Return the statement by which all invocations together set a variable in workgroup memory to zero."""
        name, type_ = self.names.module[variable.name], _checked_type(variable)
        has_words = is_host_shareable(type_) and size_of(type_) % 4 == 0
        word, size = ("u32", " / 4u") if has_words else ("unsigned char", "")
        x, y, z = self.interface.workgroup_size
        loop = f"for (u32 _word = _index; _word < sizeof({name}){size}; _word += {x * y * z}u)"
        return f"{loop} (({self.dialect.spaces['workgroup']}{word} *){name})[_word] = 0;"

    def builtin_value(self, parameter: Parameter) -> str:
        """Return the declaration of a parameter of the entry point."""
        argument, type_ = parameter.attributes[0].arguments[0], _checked_type(parameter)
        assert isinstance(argument, Name)
        template = self.dialect.builtin_values.get(argument.name, self.index_in_workgroup())
        sizes = self.interface.workgroup_size
        index = self.index_in_workgroup()
        values = {"index": index, "invocations": math.prod(sizes)}
        texts = [
            template.format(d=axis, size=size, **values) for axis, size in zip(self.dialect.axes, sizes, strict=True)
        ]
        value = f"{{{{{', '.join(texts)}}}}}" if isinstance(type_, Vector) else texts[0]
        return f"const {self.types.name(type_)} {self.names.local(parameter.name)} = {value};"

    def index_in_workgroup(self) -> str:
        """Return the index of an invocation in its workgroup."""
        template = self.dialect.builtin_values["local_invocation_id"]
        x, y, z = (template.format(d=axis) for axis in self.dialect.axes)
        size_x, size_y, size_z = self.interface.workgroup_size
        rows = f"({y} + {size_y}u * {z})" if size_z > 1 else y
        return f"{x} + {size_x}u * {rows}" if size_y * size_z > 1 else x


def _checked_type(node: Parameter | GlobalVariable) -> Type:
    assert node.type is not None, f"{node.position}: not checked"
    return node.type


def _head(before: str, parameters: list[str]) -> str:
    """Return the head of a function, on several lines if it is long."""
    line = f"{before}({', '.join(parameters)})"
    return line if len(line) < _WIDTH else f"{before}(\n{INDENT}" + f",\n{INDENT}".join(parameters) + "\n)"
