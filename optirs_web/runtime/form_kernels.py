"""Kernels of the runtime that are lowered from a `kernel.Kernel`, their form."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

from ..kernel import Kernel as Form
from ..lower.shader import Layout, need_row_kernel, row_bindings, row_parameters, row_source
from ..lower.windows import WINDOW_PARAMETERS, window_operation, window_source
from ..wgsl import parse, syntax
from .kernels import Binding, SourceKernel, bindings_of

__all__ = ["FormKernel", "form_kernel"]


class FormKernel(SourceKernel):
    """A kernel that reduces rows. Shader backends are given its WGSL; array targets lower the form itself.

    Attributes:
        form: what it computes.
        layout: of the elements of a row; see `lower.shader`.
    """

    stays_in_bounds = True  # what is read and written are elements of rows that there are

    def __init__(self, form: Form, layout: Layout, constants: Mapping[str, Any]) -> None:
        """Use `form_kernel`, which makes each kernel once."""
        if layout == "windows":
            window_operation(form)
        else:
            need_row_kernel(form, layout)
        super().__init__(form.name, constants)
        self.form = form
        self.layout = layout
        self.overwrites = layout != "windows"  # of which a launch may write some planes

    @cached_property
    def source(self) -> syntax.Module:
        """The shader, parsed; its overrides say how a row is reduced."""
        return _source(self.form, self.layout)

    def with_constants(self, constants: Mapping[str, Any]) -> FormKernel:
        """Return the kernel with these overrides."""
        return form_kernel(self.form, self.layout, **constants)

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Those of rows, then the numbers that the form needs; or those of windows."""
        return WINDOW_PARAMETERS if self.layout == "windows" else row_parameters(self.form, self.layout)

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """The arrays that it reads, then those that it writes, known without making the shader."""
        return bindings_of(row_bindings(self.form))

    def elements(self, parameters: Mapping[str, Any]) -> int:
        """Return the number of elements of all rows, by the parameters of a dispatch; of windows that of their taps."""
        columns = int(parameters["columns"])
        segments = -(-columns // parameters["segment"]) if self.layout == "segments" else 1
        return int(parameters["rows"]) // segments * columns


@cache
def _source(form: Form, layout: Layout) -> syntax.Module:
    text = window_source(form) if layout == "windows" else row_source(form, layout)
    return parse(text, f"<generated {form.name}>")


@cache
def _form_kernel(form: Form, layout: Layout, constants: tuple[tuple[str, Any], ...]) -> FormKernel:
    return FormKernel(form, layout, dict(constants))


def form_kernel(form: Form, layout: Layout = "adjacent", /, **constants: bool | float) -> FormKernel:
    """Return the kernel of a form with these overrides of its shader; see `FormKernel`.

    Raises:
        UnsupportedError: the lowerings lack what the form needs.
    """
    return _form_kernel(form, layout, tuple(sorted(constants.items())))
