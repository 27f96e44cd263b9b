"""Microsoft's DXC compiles the HLSL of shaders to DXIL, under wine.

    python tests/adapters/dx12.py FOLDER

The shaders are those that `optirs-web shader` prints by name, without flags, and of the kernels also those over f16.
FOLDER is what ``scripts/setup_dx12.sh`` has made; the HLSL is left in it. Nothing is run. Ends with 1 where a shader is
refused.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from optirs_web.cli.shader_names import PARTS, of_16_bits, sources
from optirs_web.runtime.kernels import Kernel
from optirs_web.runtime.rules import Rule
from optirs_web.translations.naga import Naga

_DXC = Path(__file__).parent / "node_modules" / "webgpu" / "dist" / "win32-x64" / "dxcompiler.dll"


def main() -> None:
    """Write the HLSL of all, compile it, and say what was refused."""
    folder, start = Path(sys.argv[1]), time.perf_counter()
    names = _write(folder)
    (folder / "dxcompiler.dll").write_bytes(_DXC.read_bytes())
    command = ["./run", "dxcompiler.dll", "list"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, errors="replace", check=True)
    results = done.stdout.splitlines()
    if len(results) != len(names):
        sys.exit(f"DXC was given {len(names)} shaders and has said something of {len(results)}")
    refused = [(name, result[2:]) for name, result in zip(names, results, strict=True) if result.startswith("0 ")]
    for name, message in refused:
        print(f"{name}: refused by DXC: {message}", file=sys.stderr)
    seconds = time.perf_counter() - start
    print(f"{len(names)} shaders, {len(refused)} refused: DXC, to DXIL of shader model 6.2; {seconds:.0f} s")
    sys.exit(bool(refused))


def _write(folder: Path) -> list[str]:
    """The HLSL of each shader into a file whose name is its number, and a list of those files; the names of shaders."""
    (folder / "hlsl").mkdir(exist_ok=True)
    naga, names = Naga(), []
    for name, kernel in _kernels():
        text = naga.translate(kernel.wgsl("naga"), name, "hlsl")
        assert isinstance(text, str)
        (folder / "hlsl" / f"{len(names)}.hlsl").write_text(text)
        names.append(name)
    (folder / "list").write_text("".join(f"hlsl/{number}.hlsl\n" for number in range(len(names))))
    return names


def _kernels() -> Iterator[tuple[str, Kernel]]:
    for group in sources().values():
        for name, source in group.items():
            if source.folder == "optimizers":
                rule = Rule(source.file)
                for part in PARTS:
                    if part in ("update", "advance") or rule.has(part):
                        yield f"{name} {part}", source.make({}, part)
                continue
            kernel = source.make({}, "")
            yield name, kernel
            half = of_16_bits(source, kernel, "f16") if source.folder in ("kernels", "rows") else None
            if half is not None:
                yield f"{name} of f16", half


if __name__ == "__main__":
    main()
