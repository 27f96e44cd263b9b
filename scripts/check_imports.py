"""Refuse cycles of imports that are larger than a folder, among them those of type annotations and within functions."""

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

    found = 0
    for importer in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            back = graph.find_shortest_chain(imported, importer) if folder(importer) != folder(imported) else None
            if back:
                found += 1
                print(f"a cycle of imports spans folders: {' -> '.join((importer, *back))}")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
