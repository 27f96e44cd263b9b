"""The reference: a page for each public module, with the signature and the docstring of each public name, by pdoc.

python scripts/make_reference.py FOLDER
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import isroutine
from pathlib import Path
from types import ModuleType
from typing import Any

from pdoc import doc, doc_types, render

import optirs_web as ow

_CLASS = re.compile(r"\*&lt;class &#x27;(.*?)&#x27;&gt;")
"""How pdoc writes what names options: `**options: Unpack[Options]`."""


def public_modules(module: ModuleType) -> Iterator[ModuleType]:
    """It, and the modules among its public names."""
    yield module
    for name in module.__all__:
        member = getattr(module, name)
        setattr(module, name, member)  # where pdoc looks for it: names are imported when they are first used
        if isinstance(member, ModuleType):
            yield from public_modules(member)


def annotation(text: Any, names: dict[str, Any], _class_names: object, module: ModuleType | None, fullname: str) -> Any:
    """Return what an annotation of a module means, by the names of the module.

    pdoc evaluates it among the names of its class, where `bool` and `int` may be methods, as those of `Tensor` are.
    """
    meaning = _evaluate(text, names, None, module, fullname)
    return text if isroutine(meaning) else meaning  # threading.RLock is a function


_evaluate = doc_types.safe_eval_type
doc.safe_eval_type = doc_types.safe_eval_type = annotation


def main(folder: Path) -> None:
    """Write the pages."""
    ow.__all__.append("ops")  # where methods of tensors are functions
    modules = {module.__name__: doc.Module(module) for module in public_modules(ow)}
    footer = f"optirs-web {ow.__version__}"
    templates = Path(__file__).with_name("reference")
    render.configure(docformat="google", show_source=False, footer_text=footer, template_directory=templates)
    pages = {f"{name.replace('.', '/')}.html": render.html_module(module, modules) for name, module in modules.items()}
    pages |= {"index.html": render.html_index(modules), "search.js": render.search_index(modules)}
    for name, text in pages.items():
        text = _CLASS.sub(r"\1", text)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    print(f"{folder / 'index.html'}: {len(modules)} modules")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
