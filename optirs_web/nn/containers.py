"""Modules that contain others: Sequential, ModuleList, ModuleDict."""

from __future__ import annotations

import operator
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import groupby
from typing import Any, overload

from .module import Module

__all__ = ["ModuleDict", "ModuleList", "Sequential"]


class _Numbered(Module):
    """Modules under the names "0", "1", ..."""

    _modules: dict[str, Module]  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def _name(self, index: int) -> str:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range for {len(self)} modules")
        return list(self._modules)[position]

    def _select(self, chosen: slice) -> Any:
        return type(self)(*list(self)[chosen])

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._select(index) if isinstance(index, slice) else self._modules[self._name(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name(index)]
        remaining = [module for name, module in self._modules.items() if name not in names]
        self._modules.clear()
        self.extend(remaining)

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Add a module before the one at `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._modules.clear()
        self.extend(modules)


class Sequential(_Numbered):
    """Modules in sequence: the output of each is the input of the next.

    Args:
        modules: modules, or one mapping of names to modules.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.Sequential(ow.nn.Linear(2, 3, device="cpu"), ow.nn.ReLU())
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
          (1): ReLU()
        )
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(modules)  # type: ignore[arg-type]

    def forward(self, input: Any) -> Any:
        """The output of the last module."""
        for module in self:
            input = module(input)
        return input

    def _select(self, chosen: slice) -> Sequential:
        return Sequential(dict(list(self._modules.items())[chosen]))


class ModuleList(_Numbered):
    """A list of modules, whose parameters are registered. It cannot be called.

    Args:
        modules: the initial modules.

    Example:
        >>> import optirs_web as ow
        >>> layers = ow.nn.ModuleList(ow.nn.Linear(2, 2, device="cpu") for _ in range(3))
        >>> layers
        ModuleList(
          (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
        )
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def _select(self, chosen: slice) -> ModuleList:
        return ModuleList(list(self)[chosen])

    def _child_lines(self) -> list[str]:
        lines = []
        for text, group in groupby(enumerate(map(repr, self)), key=lambda pair: pair[1]):
            numbers = [number for number, _ in group]
            many = len(numbers) > 1
            name = f"{numbers[0]}-{numbers[-1]}" if many else str(numbers[0])
            lines.append(f"({name}): {f'{len(numbers)} x ' * many}{text}".replace("\n", "\n  "))
        return lines


class ModuleDict(Module):
    """A dict of modules, whose parameters are registered. It cannot be called.

    Args:
        modules: the initial modules.

    Example:
        >>> import optirs_web as ow
        >>> heads = ow.nn.ModuleDict({"a": ow.nn.Linear(2, 1, device="cpu")})
        >>> heads["a"](ow.ones((4, 2), device="cpu")).shape, [name for name, _ in heads.named_parameters()]
        ((4, 1), ['a.weight', 'a.bias'])
    """

    _modules: dict[str, Module]  # type: ignore[assignment]

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        super().__init__()
        self.update(modules)

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> ItemsView[str, Module]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules by name."""
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self.add_module(name, module)

    def pop(self, name: str) -> Module:
        """Remove a module and return it."""
        return self._modules.pop(name)
