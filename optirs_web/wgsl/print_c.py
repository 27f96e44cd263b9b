"""A complete kernel as OpenCL C 1.2 or CUDA C++; `c_dialects` says in tables which C.

The text means what the WGSL means, bit for bit where WGSL leaves no choice: integers wrap and divide by anything,
shifts use five bits, conversions saturate, memory of workgroups begins at zero, and an index out of bounds is that of
the last element. Floats are IEEE's: compile it without contraction and fast mathematics (`COMPILER_OPTIONS`).

`c_interface` says what the kernel's arguments are. Variables of the module that a function touches are parameters of
it, since OpenCL has buffers and workgroup memory in kernels only.
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
from .subgroup_matrices import refuse_subgroup_matrices
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
"""What the compiler of each dialect is given, so that floats are as in the text."""

_WIDTH = 110


def print_c(
    module: Module, dialect: OneOf["opencl", "opencl-subgroups", "cuda"] = "opencl", robust: bool = True
) -> str:
    """The text of a kernel; the same module gives the same text.

    Args:
        module: checked, with one entry point; see `Kernel.module`.
        dialect: "opencl" for OpenCL C 1.2, where each invocation is a subgroup; "opencl-subgroups" for OpenCL C 3.0
            with Khronos' extensions for them; "cuda" for CUDA C++ (NVRTC).
        robust: bring indices out of bounds within them, as WGSL does; False for kernels that are known to have none.

    Raises:
        ShaderError: the kernel has subgroup matrices.
        UnsupportedError: an expression of which one part changes what another reads; or a CUDA kernel with subgroups
            whose workgroups are not made of whole warps.

    Example:
        >>> from optirs_web.runtime.kernels import elementwise
        >>> print(print_c(elementwise("relu", "relu", ("tensor",), 0).module).splitlines()[0])
        // <generated relu> in OpenCL C 1.2, printed by optirs_web.
    """
    refuse_subgroup_matrices(module, "OpenCL C and CUDA C++ as printed here")
    return _Printer(module, dialect, robust).text()


def uses_subgroups(module: Module) -> bool:
    """The kernel asks for what other invocations of its subgroup have, or for its place in one."""

    def asks(node: object) -> bool:
        if isinstance(node, Call):
            return node.kind == "builtin" and needs_subgroups(node.callee.name)
        values = node.arguments if isinstance(node, Attribute) and node.name == "builtin" else ()
        return any(isinstance(one, Name) and needs_subgroups(one.name) for one in values)

    return any(map(asks, walk(module.declarations)))


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
        self.variables = {one.name: one for one in module.declarations if isinstance(one, GlobalVariable)}
        self.functions = {one.name: one for one in module.declarations if isinstance(one, Function)}
        builtins = {
            node.callee.name
            for node in walk(list(self.functions.values()))
            if isinstance(node, Call) and node.kind == "builtin"
        }
        self.has_barriers = any(name.endswith(("Barrier", "UniformLoad")) for name in builtins)

    def text(self) -> str:
        """The whole of it."""
        for one in self.variables.values():
            self.expressions.declare(one, runtime_array(one.type) is not None)
        for name in self.functions:
            self.names.declare(name, "function")
        named = [self.constant(one) for one in self.module.declarations if isinstance(one, Constant)]
        functions = [self.function(one) for one in self.in_order()]
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
        """Subgroups are complete, so that all of their invocations take part."""
        x, y, z = self.interface.workgroup_size
        if x * y * z % self.dialect.subgroup and uses_subgroups(self.module):
            raise UnsupportedError(
                f"{self.module.file}: subgroups have {self.dialect.subgroup} invocations in {self.dialect.name}, so a "
                f"workgroup has a multiple of that, not {x * y * z}"
            )

    def in_order(self) -> list[Function]:
        """The functions, each after those that it calls."""
        ordered: dict[str, Function] = {}

        def add(one: Function) -> None:
            for node in walk(one.body):
                if isinstance(node, Call) and node.kind == "function" and node.callee.name not in ordered:
                    add(self.functions[node.callee.name])
            ordered.setdefault(one.name, one)

        for one in self.functions.values():
            add(one)
        return list(ordered.values())

    # Declarations.

    def constant(self, one: Constant) -> str:
        """A constant with its value; one that is abstract stands in its uses already."""
        type_ = one.type
        if type_ is None or is_abstract(type_):
            return ""
        value = self.initial(self.values.of(one.value), type_)
        name = self.names.declare(one.name, "file")
        space = self.dialect.constant if isinstance(type_, Scalar) else self.dialect.table
        return f"{space} {self.types.name(type_)} {name} = {value};\n"

    def initial(self, value: Value, type_: Type) -> str:
        """A value as it initialises a variable."""
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

    def function(self, one: Function) -> str:
        """A function or the kernel."""
        self.names.scopes.append({})
        if one.attributes:
            head, first = self.kernel_head(), [f"{INDENT}{line}" for line in self.kernel_start(one)]
        else:
            head, first = self.function_head(one), []
        body = self.statements.sequence(one.body.statements)
        self.names.scopes.pop()
        return "\n".join((f"{head} {{", *first, *body, "}\n"))

    def function_head(self, one: Function) -> str:
        """Its own parameters, then the variables of the module that it needs."""
        result = "void" if one.return_type is None else self.types.name(one.return_type)
        parameters = [f"{self.types.name(_known(p))} {self.names.local(p.name)}" for p in one.parameters]
        needed = [self.variables[name] for name in self.effects.needs(one.name)]
        for variable in needed:
            parameters += self.parameters(variable)
        before = self.dialect.sharing if any(v.space == "workgroup" for v in needed) else self.dialect.function
        return _head(f"{before} {result} {self.names.module[one.name]}", parameters or ["void"])

    def parameters(self, one: GlobalVariable) -> list[str]:
        """A variable of the module as parameters: a pointer, or the uniform by value; and its length."""
        variable = self.expressions.variables[one.name]
        if one.space == "uniform":
            return [f"const {self.types.name(_known(one))} {variable.name}"]
        pointer = f"{self.dialect.spaces[one.space]}{self.pointed(one)} *{self.restrict(one)}{variable.name}"
        return [pointer, f"const u32 {variable.length}"] if variable.length else [pointer]

    def pointed(self, one: GlobalVariable) -> str:
        """What a pointer to a variable points to, but for its address space."""
        type_ = _known(one)
        is_runtime = isinstance(type_, Array) and type_.count is None
        name = self.types.cell(type_.element) if is_runtime and isinstance(type_, Array) else self.types.name(type_)
        return f"const {name}" if one.space == "storage" and one.access == "read" else name

    def restrict(self, one: GlobalVariable) -> str:
        """WebGPU binds no memory twice that is written; but what others write is read again behind a barrier."""
        is_alone = one.space == "storage" and (one.access == "read" or not self.has_barriers)
        return self.dialect.restrict if is_alone else ""

    # The kernel.

    def kernel_head(self) -> str:
        """The arguments that `interface_of` lists."""
        x, y, z = self.interface.workgroup_size
        parameters = []
        for argument in self.interface.arguments:
            found = self.parameters(self.variables[argument.name])
            parameters.append(found[1] if argument.kind == "length" else found[0])
        before = self.dialect.kernel.format(x=x, y=y, z=z, invocations=x * y * z)
        return _head(f"{before} {KERNEL}", parameters or ["void"])

    def kernel_start(self, one: Function) -> list[str]:
        """The built-in values, variables of the module, and zeros in workgroup memory."""
        lines = [self.builtin_value(parameter) for parameter in one.parameters]
        for variable in self.variables.values():
            if variable.space == "private":
                zero = self.dialect.zero
                value = (
                    zero if variable.value is None else self.initial(self.values.of(variable.value), _known(variable))
                )
                lines.append(f"{self.pointed(variable)} {self.names.module[variable.name]}[1] = {{{value}}};")
        shared = [one for one in self.variables.values() if one.space == "workgroup"]
        if not shared:
            return lines
        lines += [f"{self.dialect.shared}{self.pointed(one)} {self.names.module[one.name]}[1];" for one in shared]
        lines.append(f"const u32 _index = {self.index_in_workgroup()};")
        lines += [self.cleared(one) for one in shared]
        return [*lines, f"{self.expressions.operations.row('workgroupBarrier', [])};"]

    def cleared(self, one: GlobalVariable) -> str:
        """All invocations together set a variable in workgroup memory to zero."""
        name, type_ = self.names.module[one.name], _known(one)
        has_words = is_host_shareable(type_) and size_of(type_) % 4 == 0
        word, size = ("u32", " / 4u") if has_words else ("unsigned char", "")
        x, y, z = self.interface.workgroup_size
        turns = f"for (u32 _word = _index; _word < sizeof({name}){size}; _word += {x * y * z}u)"
        return f"{turns} (({self.dialect.spaces['workgroup']}{word} *){name})[_word] = 0;"

    def builtin_value(self, one: Parameter) -> str:
        """A parameter of the entry point."""
        argument, type_ = one.attributes[0].arguments[0], _known(one)
        assert isinstance(argument, Name)
        template = self.dialect.builtin_values.get(argument.name, self.index_in_workgroup())
        sizes = self.interface.workgroup_size
        index = self.index_in_workgroup()
        values = {"index": index, "invocations": math.prod(sizes)}
        texts = [
            template.format(d=axis, size=size, **values) for axis, size in zip(self.dialect.axes, sizes, strict=True)
        ]
        value = f"{{{{{', '.join(texts)}}}}}" if isinstance(type_, Vector) else texts[0]
        return f"const {self.types.name(type_)} {self.names.local(one.name)} = {value};"

    def index_in_workgroup(self) -> str:
        """The number of an invocation among those of its workgroup."""
        template = self.dialect.builtin_values["local_invocation_id"]
        x, y, z = (template.format(d=axis) for axis in self.dialect.axes)
        size_x, size_y, size_z = self.interface.workgroup_size
        rows = f"({y} + {size_y}u * {z})" if size_z > 1 else y
        return f"{x} + {size_x}u * {rows}" if size_y * size_z > 1 else x


def _known(one: Parameter | GlobalVariable) -> Type:
    assert one.type is not None, f"{one.position}: not checked"
    return one.type


def _head(before: str, parameters: list[str]) -> str:
    """The head of a function, in as many lines as it takes."""
    line = f"{before}({', '.join(parameters)})"
    return line if len(line) < _WIDTH else f"{before}(\n{INDENT}" + f",\n{INDENT}".join(parameters) + "\n)"
