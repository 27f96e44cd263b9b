"""Operations from a user's own WGSL, with their gradients."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .autograd import record
from .errors import ShaderError, UnsupportedError
from .launch import Operand, apply
from .ops.operands import as_number, shape_of
from .ops.reduce import sum_to
from .runtime.dtypes import BOOL, FLOAT32, INT32, UINT32, DType
from .tensors import Tensor, tensor
from .wgsl import add_module, load_map_module, parse
from .wgsl.lints import lint
from .wgsl.syntax import Declaration, Function, GlobalVariable, Module, Position
from .wgsl.types import BOOL as WGSL_BOOL, F32, I32, U32, Type

__all__ = ["CustomOperation", "custom_op"]

Gradient = Callable[..., Any]

_DTYPES: dict[Type, DType] = {F32: FLOAT32, I32: INT32, U32: UINT32}
_RESULTS: dict[Type, DType] = {**_DTYPES, WGSL_BOOL: BOOL}

_TAKEN = re.compile(
    r"main|index|first|iteration|lane|grid|workgroup|rest|size|value|result|parameters|\w*Parameters|"
    r"(at|dim|s|t|x|y)\d+\w*|\w+_(at|start|values)|\w+_(stride|step)\d+|ends\d+"
)
"""Names in the code that is generated around the functions."""

_TAKEN_BY_VALUES = re.compile(
    r"[aeruvw]_\w+|rows_\w+|m\d+|at|[abc]|row|column|product|of_column|read_of_column|stored|loaded|launch|range"
)
"""Names of values and arrays in generated code, which no function may have; those of parameters get a prefix there."""

_numbers = itertools.count()
_files: dict[tuple[str, str], str] = {}
"""The module name of each text, by the text and its title."""


def custom_op(
    source: str | os.PathLike[str],
    function: str | None = None,
    *,
    gradient: Mapping[str, Gradient | None] | None = None,
) -> CustomOperation:
    """Make an operation from a function in WGSL, which is applied to each element and runs on every device.

    Its parameters are `f32`, `i32` or `u32` (a bool tensor holds 0 and 1 as u32), and it returns one of these or
    `bool`. A parameter `index: u32` gets the element's number instead of an operand. It may import from the library:
    `import package::lib::math::precise_exp;`. The operation takes tensors, numbers and arrays, which broadcast.

    The gradient by a parameter X is the function `FUNCTION_grad_X` of the same text if there is one: g times the
    derivative by X, as an f32. By these names it takes `g`, and any of the function's parameters and `output`, the
    result. It is linear in g, as derivatives are, and has no derivatives itself by the others: for second derivatives
    pass Python functions of differentiable operations.

    Args:
        source: WGSL, or the path of a file with it.
        function: its name; by default that of the first function in the text.
        gradient: for parameters by name, a function of g and all operands that returns the gradient by operations of
            optirs_web, or custom ones, so that it can be differentiated. None: the derivative is 0.

    Returns:
        The operation, which is called with the operands, in order or by name.

    Raises:
        ShaderError: the WGSL is wrong, with file, line and column.
        TypeError: a name in `gradient` is no f32 parameter.
        OSError: the file cannot be read.

    A gradient without a rule raises UnsupportedError when it is computed; it is never silently 0.

    Example:
        >>> import optirs_web as ow
        >>> swish = ow.custom_op('''
        ...     import package::lib::math::precise_exp;
        ...     fn swish(x: f32, beta: f32) -> f32 { return x / (1.0 + precise_exp(-beta * x)); }
        ...     fn swish_grad_x(g: f32, x: f32, beta: f32) -> f32 {
        ...         let s = 1.0 / (1.0 + precise_exp(-beta * x));
        ...         return g * (s + beta * x * s * (1.0 - s));
        ...     }
        ... ''')
        >>> x = ow.tensor([0.0, 1.0], device="cpu", requires_grad=True)
        >>> swish(x, beta=2.0).sum().backward()
        >>> [round(value, 4) for value in x.grad.tolist()]
        [0.5, 1.0908]
    """
    text, title = _read(source, function)
    return CustomOperation(text, title, function, gradient or {})


class CustomOperation:
    """An operation from WGSL: call it with its operands. Made by `custom_op`.

    Attributes:
        name: of the function.
        parameters: the names of the operands, in order.
    """

    def __init__(self, text: str, title: str, function: str | None, gradient: Mapping[str, Gradient | None]) -> None:
        """Parse and check the text; use `custom_op`."""
        self._text, self._title, self._python_gradients = text, title, dict(gradient)
        source = parse(text, title)
        functions = {
            declaration.name: declaration for declaration in source.declarations if isinstance(declaration, Function)
        }
        _check_names(source)
        if not functions:
            raise ShaderError("the text declares no function", file=title, line=1, column=1)
        self.name = next(iter(functions)) if function is None else function
        self._file = _added(text, title, source)
        self._types, self._dtype = self._signature(self.name)
        self.parameters = tuple(self._types)
        gradients = {parameter: f"{self.name}_grad_{parameter}" for parameter in self.parameters}
        self._slopes = {
            parameter: (name, self._operands_of_gradient(name, functions[name].position))
            for parameter, name in gradients.items()
            if name in functions
        }
        for parameter in self._python_gradients:
            if self._types.get(parameter) != F32:
                differentiable = ", ".join(name for name, type_ in self._types.items() if type_ == F32)
                raise TypeError(
                    f"'{parameter}' is not an f32 parameter of {self.name}, "
                    f"which could have a gradient: {differentiable}"
                )

    def __repr__(self) -> str:
        return f"<custom operation {self.name}({', '.join(self.parameters)})>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text, which is parsed again."""
        return CustomOperation, (self._text, self._title, self.name, self._python_gradients)

    def _signature(self, function: str) -> tuple[dict[str, Type], DType]:
        """Check a function, and return the types of its operands by name, and that of its result."""
        module = load_map_module("elementwise", self._file, (function,))
        lint(module)
        declared = next(
            declaration
            for declaration in module.declarations
            if isinstance(declaration, Function) and declaration.name == function
        )
        types: dict[str, Type] = {}
        for parameter in declared.parameters:
            if parameter.type not in _DTYPES:
                raise _error(
                    parameter.position, f"'{parameter.name}' is {parameter.type}; an operand is f32, i32 or u32"
                )
            if parameter.name != "index":
                types[parameter.name] = parameter.type
        if declared.return_type not in _RESULTS:
            raise _error(declared.position, f"'{function}' returns {declared.return_type}; not f32, i32, u32 or bool")
        return types, _RESULTS[declared.return_type]

    def _operands_of_gradient(self, name: str, position: Position) -> tuple[str, ...]:
        types, dtype = self._signature(name)
        available = {"g": F32, "output": F32, **self._types}
        if {"g", "output"} & self._types.keys():
            raise _error(
                position, f"'g' and 'output' are reserved for the gradient: rename these parameters of {self.name}"
            )
        if dtype is not FLOAT32 or "g" not in types:
            raise _error(position, f"'{name}' takes g: f32, the gradient of the result, and returns f32")
        for operand, type_ in types.items():
            if available.get(operand) != type_:
                raise _error(
                    position,
                    f"'{operand}: {type_}' is not a parameter of {self.name}, nor g or output, which are f32",
                )
        return tuple(types)

    def __call__(self, *operands: Any, **by_name: Any) -> Tensor:
        """Apply the function to each element.

        Raises:
            TypeError: an operand is missing or unknown, or all are numbers.
            ShapeError: the operands cannot be broadcast, or are on different devices.
            UnsupportedError: a tensor is of another type than the parameter.
        """
        values = self._operands(operands, by_name)
        operand_list = list(values.values())
        result = apply(self._file, self.name, *operand_list, dtype=self._dtype)
        if self._dtype is not FLOAT32:
            return result
        return record(
            result, *((operand, self._rule(name, values)) for name, operand in values.items() if self._has(name))
        )

    def _has(self, name: str) -> bool:
        """Return whether a parameter may have a gradient other than 0."""
        return self._types[name] == F32 and self._python_gradients.get(name, self) is not None

    def _operands(self, operands: tuple[Any, ...], by_name: Mapping[str, Any]) -> dict[str, Operand]:
        """Return the operands by name, as tensors and numbers."""
        named = dict(zip(self.parameters, operands, strict=False))
        wrong = [name for name in by_name if name in named or name not in self._types]
        named |= by_name
        if wrong or len(operands) > len(self.parameters) or len(named) < len(self.parameters):
            raise TypeError(f"{self.name} takes the operands ({', '.join(self.parameters)})")
        device = next((operand.device for operand in named.values() if isinstance(operand, Tensor)), None)
        values = {name: self._operand(named[name], self._types[name], device) for name in self.parameters}
        if not any(isinstance(operand, Tensor) for operand in values.values()):
            raise TypeError(f"{self.name} needs an operand that is a tensor, which says where to compute")
        return values

    def _operand(self, value: Any, type_: Type, device: Any) -> Operand:
        if isinstance(value, (bool, int, float)):
            return as_number(value) if type_ == F32 else int(value)
        return value if isinstance(value, Tensor) else tensor(value, device=device, dtype=_DTYPES[type_])

    # Gradients.

    def _rule(self, name: str, values: Mapping[str, Operand]) -> Callable[[Tensor, Tensor], Tensor]:
        shape = shape_of(values[name])
        by_user = self._python_gradients.get(name)
        if by_user is not None:
            return lambda g, _: sum_to(by_user(g, *values.values()), shape)
        if name in self._slopes:
            function, names = self._slopes[name]

            def rule(g: Tensor, y: Tensor) -> Tensor:
                available = {**values, "g": g, "output": y}
                return sum_to(self._slope(function, {operand: available[operand] for operand in names}), shape)

            return rule
        return _refusal(
            f"{self.name} has no gradient by '{name}': write fn {self.name}_grad_{name}(g: f32, ...) -> f32 beside it, "
            f"or give custom_op(..., gradient={{'{name}': a function of g and the operands}})"
        )

    def _slope(self, function: str, values: Mapping[str, Operand]) -> Tensor:
        """Compute a gradient in WGSL, which is linear in g, and has no derivatives by its other operands."""
        result = apply(self._file, function, *values.values(), shape=shape_of(values["g"]))
        edges = [(values["g"], lambda h, _: self._slope(function, {**values, "g": h}))]
        for name, operand in values.items():
            if name != "g" and isinstance(operand, Tensor) and operand.dtype is FLOAT32:
                message = (
                    f"'{function}' of a custom operation has no derivative by '{name}', which a second derivative "
                    "needs: give custom_op(..., gradient={...}) functions of differentiable operations"
                )
                edges.append((operand, _refusal(message)))
        return record(result, *edges)


def _refusal(message: str) -> Callable[[Tensor, Tensor], Tensor]:
    def refuse(*_: Tensor) -> Tensor:
        raise UnsupportedError(message)

    return refuse


def _read(source: str | os.PathLike[str], function: str | None) -> tuple[str, str]:
    """Return the text, and its name in messages."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source, function or "custom_op"
    return Path(source).read_text("utf-8"), os.fspath(source)


def _added(text: str, title: str, module: Module) -> str:
    """Add the text to the elementwise modules, from which kernels import functions, and return its name there."""
    if (text, title) not in _files:
        name = f"custom_{next(_numbers)}"
        add_module(("elementwise", name), module)
        _files[text, title] = name
    return _files[text, title]


def _check_names(module: Module) -> None:
    """Check that a module has only functions, and no names of the generated code.

    Raises:
        ShaderError: it has others.
    """
    for declaration in module.declarations:
        if isinstance(declaration, GlobalVariable) or (isinstance(declaration, Function) and declaration.attributes):
            raise _error(
                declaration.position, "a custom operation may have only functions, no variables or entry points"
            )
        if _is_taken(declaration):
            raise _error(
                declaration.position, f"'{_name(declaration)}' is used in the generated code: choose another name"
            )
        if isinstance(declaration, Function):
            if _TAKEN_BY_VALUES.fullmatch(declaration.name):
                raise _error(
                    declaration.position, f"'{declaration.name}' is used in the generated code: choose another name"
                )
            for parameter in declaration.parameters:
                if parameter.name != "index" and _TAKEN.fullmatch(parameter.name):
                    message = f"'{parameter.name}' is used in the generated code: choose another name"
                    raise _error(parameter.position, message)


def _name(declaration: Declaration) -> str:
    return str(getattr(declaration, "name", ""))


def _is_taken(declaration: Declaration) -> bool:
    return _TAKEN.fullmatch(_name(declaration)) is not None


def _error(position: Position, message: str) -> ShaderError:
    return ShaderError(message, file=position.file, line=position.line, column=position.column)
