"""Analyze the machine code that NVIDIA's compiler generates for the product kernels of discrete GPUs, without a GPU.

Prints for each tile and each staging of the operands, and for convolutions of these tiles: multiply-adds (FFMA) per
load of workgroup memory (LDS); their share of the instructions of the loop over the inner axis; the registers of an
invocation; and spills, the loads and stores of local memory. Nothing runs, so this does not measure time. `--check`
fails where the default of discrete GPUs has fewer than 8 multiply-adds per load, a share below 80%, or a spill.

python benchmarks/product_code.py [--arch sm_90] [--all] [--check]
"""

import argparse
import re
import subprocess
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from optirs_web.runtime import nvrtc
from optirs_web.runtime.products import TILE_CLASSES, TILES, Staging, band_kernel, by_tiles, convolution_by_tiles
from optirs_web.wgsl.print_c import print_c

LEAST_PER_LOAD, LEAST_SHARE = 8.0, 0.8
DEFAULT = TILE_CLASSES["discrete"].tiles[0]
BY_VECTORS = {
    "A B": (Staging.BY_DEPTH, Staging.ACROSS),
    "Aᵀ B": (Staging.ACROSS, Staging.ACROSS),
    "A Bᵀ": (Staging.BY_DEPTH, Staging.BY_DEPTH),
    "Aᵀ Bᵀ": (Staging.ACROSS, Staging.BY_DEPTH),
}

CONVOLUTIONS = {
    "a convolution": partial(convolution_by_tiles, a=Staging.BY_DEPTH, along_depth=False),
    "its gradient of the filters": partial(convolution_by_tiles, a=Staging.BY_DEPTH, along_depth=True),
    "3x3 by bands": lambda tile: band_kernel(tile.rows, 8, BY_VECTORS=True),
    "its gradient of the images": lambda tile: band_kernel(tile.rows, 8, BY_VECTORS=True, IS_FLIPPED=True),
}


class Code(NamedTuple):
    """Counts of a kernel's machine code, in its loop over the inner axis where nothing else is said.

    Attributes:
        instructions: all instructions.
        fma: multiply-adds.
        loads: loads of workgroup memory.
        registers: those of an invocation, in the whole kernel.
        spills: loads and stores of local memory, in the whole kernel.
    """

    instructions: int
    fma: int
    loads: int
    registers: int
    spills: int

    @property
    def share(self):
        """Multiply-adds as a share of the instructions."""
        return self.fma / self.instructions

    @property
    def per_load(self):
        """Multiply-adds per load of workgroup memory."""
        return self.fma / self.loads

    def __str__(self):
        """The cells of a row of the table."""
        return f"{self.per_load:.1f} | {self.share:.0%} | {self.registers} | {self.spills}"

    @property
    def is_within_bounds(self):
        """True if there are no spills and both `LEAST_PER_LOAD` and `LEAST_SHARE` are reached."""
        return self.per_load >= LEAST_PER_LOAD and self.share >= LEAST_SHARE and not self.spills


def disassembler():
    """Return the path of nvdisasm in NVIDIA's package, or its name, to be found on the PATH."""
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else ()
    paths = [path for folder in folders for path in Path(folder).glob("cu*/bin/nvdisasm*")]
    return str(paths[0]) if paths else "nvdisasm"


def disassembled(cubin):
    """Return the disassembly of machine code, as nvdisasm prints it."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([disassembler(), file.name], capture_output=True, text=True, check=True).stdout


def code_of(kernel, arch="sm_90"):
    """Compile a kernel of products, and return the counts of its loop."""
    operations, loops, registers = machine_code(kernel, arch)
    bodies = [operations[first : last + 1] for first, last in loops]
    body = min(bodies, key=lambda body: (-body.count("FFMA"), len(body)))
    return Code(len(body), body.count("FFMA"), body.count("LDS"), registers, spills_of(operations))


def machine_code(kernel, arch="sm_90"):
    """Compile a kernel, and return its operations and loops, see `loops_of`, and the registers of an invocation."""
    cubin = nvrtc.compile_cuda(print_c(kernel.module, "cuda", robust=not kernel.stays_in_bounds), arch, "cubin")
    text = disassembled(cubin)
    registers = re.search(r"EIATTR_REGCOUNT.*?index@\(main_\)\s+/\*\w+\*/\s+\.word\s+(0x\w+)", text, re.DOTALL)
    return *loops_of(text), int(registers[1], 16)


def spills_of(operations):
    """Return the number of loads and stores of local memory."""
    return operations.count("LDL") + operations.count("STL")


def loops_of(text):
    """Return a kernel's operations without modifiers, and the first and last position of each loop."""
    operations, labels, jumps = [], {}, []
    for instruction in text.splitlines():
        if label := re.match(r"(\.L_\w+):", instruction):
            labels[label[1]] = len(operations)
        elif operation := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z]\w*)(.*)", instruction):
            if operation[1] == "BRA" and (target := re.search(r"\.L_\w+", operation[2])):
                jumps.append((target[0], len(operations)))
            operations.append(operation[1])
    return operations, [(labels[target], at) for target, at in jumps if labels.get(target, at) < at]


def main():
    """Print a row for each kernel."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument(
        "--all", action="store_true", help="all tiles that can be chosen, not only those of discrete GPUs"
    )
    parser.add_argument("--check", action="store_true", help="fail where the default is below the figures")
    options = parser.parse_args()
    print(f"{options.arch}, NVIDIA's compiler {'.'.join(map(str, nvrtc.version()))}")
    print("| tile | operands | FFMA per LDS | FFMA of all | registers | spills |\n|---|---|---|---|---|---|")
    for tile in TILES if options.all else TILE_CLASSES["discrete"].tiles:
        for name, stagings in {**BY_VECTORS, "by elements": (Staging.BY_ELEMENTS,) * 2}.items():
            code = code_of(by_tiles("matmul", tile, *stagings), options.arch)
            print(f"| {tile} | {name} | {code} |", flush=True)
            if options.check and tile == DEFAULT and name in BY_VECTORS and not code.is_within_bounds:
                sys.exit(f"{tile}, {name}: below {LEAST_PER_LOAD:.0f} FFMA per LDS, or {LEAST_SHARE:.0%}, or it spills")
        if tile.rows <= 64:
            for name, kernel in CONVOLUTIONS.items():
                code = code_of(kernel(tile), options.arch)
                print(f"| {tile} | {name} | {code} |", flush=True)


if __name__ == "__main__":
    main()
