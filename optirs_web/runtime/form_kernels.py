"""Kernels of the runtime that are lowered from a `kernel.Kernel`, their form."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

from ..kernel import Kernel as Form
from ..lower.shader import need_row_kernel, row_bindings, row_parameters, row_source
from ..wgsl import parse, syntax
from .kernels import Binding, SourceKernel, bindings_of

__all__ = ["FormKernel", "form_kernel"]


class FormKernel(SourceKernel):
    """A kernel that reduces rows. Shader backends are given its WGSL; array targets lower the form itself.

    Attributes:
        form: what it computes.
        strided: the elements of a row are not next to each other; see `lower.shader`.
    """

    overwrites = True
    stays_in_bounds = True  # what is read and written are elements of rows that there are

    def __init__(self, form: Form, strided: bool, constants: Mapping[str, Any]) -> None:
        """Use `form_kernel`, which makes each kernel once."""
        need_row_kernel(form)
        super().__init__(form.name, constants)
        self.form = form
        self.strided = strided

    @cached_property
    def source(self) -> syntax.Module:
        """The shader, parsed; its overrides say how a row is reduced."""
        return parse(row_source(self.form, strided=self.strided), f"<generated {self.name}>")

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Those of rows, then the numbers that the form needs."""
        return row_parameters(self.form)

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """The arrays that it reads, then those that it writes, known without making the shader."""
        return bindings_of(row_bindings(self.form))


@cache
def _form_kernel(form: Form, strided: bool, constants: tuple[tuple[str, Any], ...]) -> FormKernel:
    return FormKernel(form, strided, dict(constants))


def form_kernel(form: Form, strided: bool = False, /, **constants: bool | float) -> FormKernel:
    """Return the kernel of a form with these overrides of its shader; see `FormKernel`.

    Raises:
        UnsupportedError: the lowerings lack what the form needs.
    """
    return _form_kernel(form, strided, tuple(sorted(constants.items())))
