"""Analyze the machine code that NVIDIA's compiler generates for the attention kernels of GPUs, without a GPU.

Prints a row for each tile, 64 and 128 columns, and each loop that multiplies: the products of queries and keys
(Q Kᵀ), those of the values in gradients (dO Vᵀ), and the sums of weighted rows (P V). It has the loop's multiply-adds
(FFMA) per load of workgroup memory (LDS) and their share of its instructions, staging included; the registers of an
invocation; and spills, the loads and stores of local memory in the whole kernel. Nothing runs, so this does not measure
time. `--check` fails where a tile of discrete GPUs has fewer than 8 multiply-adds per load, less than 65%, or spills.

python benchmarks/attention_code.py [--arch sm_90] [--check]
"""

import argparse
import sys

from product_code import Code, machine_code, spills_of

from optirs_web.runtime import nvrtc
from optirs_web.runtime.attention_tiles import TILES, attention_kernel, attention_tile

LEAST_PER_LOAD, LEAST_SHARE = 8.0, 0.65
KERNELS = {"attention": ("Q Kᵀ", "P V"), "attention_grad": ("Q Kᵀ", "dO Vᵀ", "P V")}
"""The loops of each kernel, in the order of its code."""
COLUMN_TILES = (2, 4)
"""The numbers of tiles of 32 columns to analyze. With one tile, the rows of the sums are staged outside a loop."""
OF_DISCRETE = {
    (attention_tile("discrete", rows, 64, column_tiles), column_tiles)
    for rows in (32, 1024)
    for column_tiles in COLUMN_TILES
}
"""The tiles of discrete GPUs, for few rows and for many, with their column tiles."""


def codes_of(name, tile, column_tiles, arch="sm_90"):
    """Compile a kernel that reads by vectors, and return the counts of each loop that multiplies, by its name."""
    kernel = attention_kernel(name, "discrete", tile, column_tiles, by_vectors=True)
    operations, loops, registers = machine_code(kernel, arch)
    codes = []
    for inner in sorted(loops):
        body = operations[inner[0] : inner[1] + 1]
        if any(inner != loop and _holds(inner, loop) for loop in loops) or not {"FFMA", "LDS"} <= set(body):
            continue
        first, last = min(
            (loop for loop in loops if loop != inner and _holds(loop, inner)), key=lambda loop: loop[1] - loop[0]
        )
        # A loop that stages repeats the multiplying loop: for four vectors of depths, or for the groups of staged rows.
        times = 8 // column_tiles if len(codes) == len(KERNELS[name]) - 1 else 4
        instructions = last + 1 - first + (times - 1) * len(body)
        fma, loads = (times * body.count(operation) for operation in ("FFMA", "LDS"))
        codes.append(Code(instructions, fma, loads, registers, spills_of(operations)))
    return dict(zip(KERNELS[name], codes, strict=True))


def _holds(loop, other):
    return loop[0] <= other[0] and other[1] <= loop[1]


def is_within_bounds(code):
    """Return whether a loop reaches `LEAST_PER_LOAD` and `LEAST_SHARE`, and the kernel has no spills."""
    return code.per_load >= LEAST_PER_LOAD and code.share >= LEAST_SHARE and not code.spills


def main():
    """Print a row for each loop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--check", action="store_true", help="fail where a tile of discrete GPUs is out of bounds")
    options = parser.parse_args()
    print(f"{options.arch}, NVIDIA's compiler {'.'.join(map(str, nvrtc.version()))}")
    print("| tile | columns | kernel | loop | FFMA per LDS | FFMA of all | registers | spills |\n" + "|---" * 8 + "|")
    for tile in TILES:
        for column_tiles in COLUMN_TILES:
            for name in KERNELS:
                for loop, code in codes_of(name, tile, column_tiles, options.arch).items():
                    counts = f"{code.per_load:.1f} | {code.share:.0%} | {code.registers} | {code.spills}"
                    print(f"| {tile} | {32 * column_tiles} | {name} | {loop} | {counts} |", flush=True)
                    if options.check and (tile, column_tiles) in OF_DISCRETE and not is_within_bounds(code):
                        sys.exit(f"{name}, {tile}, {32 * column_tiles} columns, {loop}: out of bounds")


if __name__ == "__main__":
    main()
