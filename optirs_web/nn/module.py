"""Module: the base class of layers and models, with parameters, buffers and modules by name, as torch.nn.Module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ..runtime.device import Device
from ..runtime.flags import flag_changed, flag_used
from ..runtime.registry import device as device_of
from ..tensors import Parameter, Tensor
from .buffers import Buffer
from .hooks import Hooks, RemovableHandle, after_forward, before_forward
from .moving import move
from .state import IncompatibleKeys, load_state_dict, state_of

__all__ = ["Module"]

Self = TypeVar("Self", bound="Module")


def _no_forward(self: Module, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(f"{type(self).__name__} has no forward()")


class Module:
    """The base of layers and models: write `forward`, and assign parameters, buffers and modules to attributes.

    They are registered by the names of their attributes, in the order of assignment, as in torch: `state_dict()` has
    torch's names and layout, so that torch's weights load unchanged. The `__init__` of a subclass calls
    ``super().__init__()`` first.

    Attributes:
        training: whether dropout drops and batch norm uses the batch; `train()` and `eval()` set it.

    Example:
        >>> import optirs_web as ow
        >>> class Scale(ow.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.weight = ow.nn.Parameter([2.0], device="cpu")
        ...     def forward(self, x):
        ...         return x * self.weight
        >>> module = Scale()
        >>> module(ow.tensor([3.0], device="cpu")).tolist(), list(module.state_dict())
        ([6.0], ['weight'])
    """

    forward: Callable[..., Any] = _no_forward
    may_be_missing: frozenset[str] = frozenset()
    """Buffers that a state dict need not have."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Buffer | None]
    _modules: dict[str, Module | None]

    def __init__(self) -> None:
        setter = super().__setattr__
        setter("training", True)
        setter("_parameters", {})
        setter("_buffers", {})
        setter("_modules", {})
        setter("_forward_hooks", {})
        setter("_forward_pre_hooks", {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, with the registered hooks before and after it."""
        before: Hooks = self._forward_pre_hooks
        after: Hooks = self._forward_hooks
        if before:
            args, kwargs = before_forward(self, before, args, kwargs)
        result = self.forward(*args, **kwargs)
        return after_forward(self, after, args, kwargs, result) if after else result

    # Attributes.

    @property
    def training(self) -> bool:
        """The mode that `train` and `eval` set."""
        value: bool = self.__dict__["training"]
        flag_used(self, "training", value)
        return value

    @training.setter
    def training(self, value: bool) -> None:
        before, now = self.__dict__.get("training"), bool(value)
        self.__dict__["training"] = now
        if before is not None and before is not now:
            flag_changed(self, "training", before)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            entries = self.__dict__.get(table, {})
            if name in entries:
                return entries[name]
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        if "_parameters" not in self.__dict__:
            if isinstance(value, (Parameter, Buffer, Module)):
                raise AttributeError(f"call super().__init__() before the attribute '{name}' is set")
            super().__setattr__(name, value)
        elif isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.add_module(name, value)
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
        elif name in self._buffers:
            self._set_buffer(name, value)
        elif name in self._parameters or name in self._modules:
            if value is not None:
                what = "parameter" if name in self._parameters else "module"
                raise TypeError(f"'{name}' is a {what} and cannot become {value!r}; del it first")
            table: dict[str, Any] = self._parameters if name in self._parameters else self._modules
            table[name] = None
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        for table in self._tables():
            if name in table:
                del table[name]
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for table in self._tables() for name in table)})

    def _tables(self) -> tuple[dict[str, Any], ...]:
        return self._parameters, self._buffers, self._modules

    def _register(self, table: dict[str, Any], name: str, value: Any) -> None:
        if not name or "." in name:
            raise KeyError(f"a name must be non-empty and have no dot, not {name!r}")
        if name not in table and hasattr(type(self), name):
            raise KeyError(f"'{name}' is a method or attribute of {type(self).__name__} already")
        self.__dict__.pop(name, None)
        for other_table in self._tables():
            if other_table is not table:
                other_table.pop(name, None)
        table[name] = value

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, as an assignment does; None reserves the name of an optional one, such as a bias.

        Raises:
            KeyError: the name cannot be that of a parameter.
            TypeError: it is something else.
        """
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"'{name}' needs an optirs_web.Parameter or None, not {param!r}")
        self._register(self._parameters, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is not trained; unless it is not `persistent` it goes into the state dict.

        It becomes a `Buffer`, which shares the memory of the tensor. Assigning to the attribute afterwards writes in
        place where shape, type and device are the same, so that a compiled step continues with it.

        Raises:
            KeyError: the name cannot be that of a buffer.
            TypeError: it is no tensor.
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"'{name}' needs a tensor or None, not {tensor!r}")
        if isinstance(tensor, Buffer):
            tensor.persistent = persistent
        buffer = tensor if tensor is None or isinstance(tensor, Buffer) else Buffer(tensor, persistent=persistent)
        self._register(self._buffers, name, buffer)

    def _set_buffer(self, name: str, value: Any) -> None:
        old = self._buffers[name]
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"'{name}' is a buffer and cannot become {value!r}; del it first")
        if old is None or value is None:
            self.register_buffer(name, value, True if old is None else old.persistent)
        elif (value.shape, value.dtype, value.device) == (old.shape, old.dtype, old.device):
            old.assign(value)
        else:
            old.view.buffer.retired = True
            self.register_buffer(name, value, old.persistent)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a module, as an assignment does.

        Raises:
            KeyError: the name cannot be that of a module.
            TypeError: it is something else.
        """
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"'{name}' needs a Module or None, not {module!r}")
        self._register(self._modules, name, module)

    register_module = add_module

    # Contents by name.

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """This module and all modules in it, by path: each once, under its first name, if `remove_duplicate` is set."""
        return self._named_modules(prefix, set() if remove_duplicate else None)

    def _named_modules(self, prefix: str, seen: set[int] | None) -> Iterator[tuple[str, Module]]:
        if seen is not None:
            if id(self) in seen:
                return
            seen.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child._named_modules(f"{prefix}.{name}" if prefix else name, seen)

    def modules(self) -> Iterator[Module]:
        """This module and all modules in it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly in this one, each once, by name."""
        seen: set[int] = set()
        for name, child in self._modules.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """The modules directly in this one, each once."""
        return (child for _, child in self.named_children())

    def _named(self, table: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        modules = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]
        seen: set[int] = set()
        for path, module in modules:
            for name, value in getattr(module, table).items():
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters by path. A tied parameter is listed once, under its first name."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters, each once, as an optimizer takes them."""
        return (param for _, param in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Buffer]]:
        """Buffers by path."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Buffer]:
        """Buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as "encoder.layers.0".

        Raises:
            AttributeError: there is none.
        """
        module: Any = self
        for name in target.split(".") if target else ():
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"'{name}' of '{target}' is not a module")
        submodule: Module = module
        return submodule

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as "encoder.layers.0.weight".

        Raises:
            AttributeError: there is none.
        """
        path, _, name = target.rpartition(".")
        param = getattr(self.get_submodule(path), name)
        if not isinstance(param, Parameter):
            raise AttributeError(f"'{target}' is not a parameter")
        return param

    # State.

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Parameters and persistent buffers by torch's names.

        The tensors share the memory of the values, without a copy: they change as training continues, until an
        optimizer or `to` moves a parameter. ``copy.deepcopy`` of the dict keeps them. Tied parameters are listed
        under each name.

        Args:
            prefix: put before each name.
            keep_vars: give the parameters themselves instead of detached tensors.
        """
        return {name: tensor if keep_vars else tensor.detach() for name, tensor, _ in state_of(self, prefix)}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Write values by name into parameters and buffers, in place: all of them, or none.

        Args:
            state_dict: tensors of ours or of torch, arrays, memoryviews or nested lists by torch's names. Numbers of
                another type are converted. `optirs_web.interop.safetensors.load_state_dict` reads a file.
            strict: refuse names that only one of the two has.

        Returns:
            The names that were passed over, as ``missing_keys`` and ``unexpected_keys``.

        Raises:
            CheckpointError: names or shapes do not fit; the message lists them. Nothing was changed.

        Example:
            >>> import optirs_web as ow
            >>> layer = ow.nn.Linear(2, 1, device="cpu")
            >>> layer.load_state_dict({"weight": [[1.0, 2.0]], "bias": [3.0]})
            IncompatibleKeys(missing_keys=[], unexpected_keys=[])
        """
        return load_state_dict(self, state_dict, strict)

    # Changes of the module and all modules in it.

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` with every module in this one and then with this one: to initialise weights, for example."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self: Self, mode: bool = True) -> Self:
        """Set the mode of this module and all in it: dropout drops, batch norm uses the batch."""
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set the mode for using a model: ``train(False)``."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Have gradients computed for the parameters, or not: False freezes them."""
        for param in self.parameters():
            param.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of the parameters to None, or fill them with zeros."""
        for param in self.parameters():
            if set_to_none:
                param.grad = None
            elif param.grad is not None:
                param.grad = param.grad * 0.0

    def to(self: Self, device: str | Device) -> Self:
        """Move parameters, their gradients and buffers to another device; they stay the same objects. Waits.

        Call it before an optimizer takes the parameters: an optimizer keeps them in arenas of their device. Where one
        has them, the way is ``copy.deepcopy(module).to(device)`` and an optimizer over the copy.

        Args:
            device: what `optirs_web.device` takes.

        Raises:
            UnsupportedError: an optimizer has a parameter. Nothing was moved.
            DeviceNotAvailableError: there is no such device.
        """
        move(self, device_of(device))
        return self

    # Hooks.

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Have ``hook(module, args)`` called before `forward`; what it returns, unless None, replaces the arguments.

        Args:
            hook: with `with_kwargs` it is called as ``hook(module, args, kwargs)`` and returns both, or None.
            prepend: before the hooks that are there.
            with_kwargs: see `hook`.
        """
        return RemovableHandle(self._forward_pre_hooks, hook, with_kwargs, prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Have ``hook(module, args, output)`` called after `forward`; what it returns, unless None, is the output.

        Args:
            hook: with `with_kwargs` it is called as ``hook(module, args, kwargs, output)``.
            prepend: before the hooks that are there.
            with_kwargs: see `hook`.
        """
        return RemovableHandle(self._forward_hooks, hook, with_kwargs, prepend)

    # As text.

    def extra_repr(self) -> str:
        """The text that `repr` shows between the parentheses, before the modules."""
        return ""

    def _child_lines(self) -> list[str]:
        return [_indented(f"({name}): {child!r}") for name, child in self._modules.items()]

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = self._child_lines()
        if len(extra) == 1 and not children:
            return f"{type(self).__name__}({extra[0]})"
        body = "".join(f"\n  {line}" for line in (*extra, *children))
        return f"{type(self).__name__}({body}{chr(10) * bool(body)})"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
