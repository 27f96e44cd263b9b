"""Refuse cycles of imports between folders, among them those of type annotations and within functions.

Cycles within the folder `optirs_web` are refused by the layers; imports by name are not seen.
"""

from __future__ import annotations

import sys

import grimp

PACKAGE = "optirs_web"


def main() -> int:
    """Print each import between two folders that closes a cycle; return 1 if there are any."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    is_package = {module: bool(graph.find_children(module)) for module in graph.modules}

    def folder(module: str) -> str:
        return module if is_package[module] else module.rpartition(".")[0]

    cycles = []
    for importer in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            back = graph.find_shortest_chain(imported, importer) if folder(importer) != folder(imported) else None
            if back:
                cycles.append(" -> ".join((importer, *back)))
    print("".join(f"a cycle of imports spans folders: {cycle}\n" for cycle in cycles), end="")
    return int(bool(cycles))


if __name__ == "__main__":
    sys.exit(main())
