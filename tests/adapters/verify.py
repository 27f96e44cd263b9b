"""Every shader of the library is one for its other compilers, too: naga, spirv-val, Tint and NVIDIA's.

    python tests/adapters/verify.py [--verbose] [--machine-code sm_80 sm_90 sm_120]

naga (wgpu, Firefox) has to take each and to write SPIR-V, MSL and HLSL; spirv-val has to find that SPIR-V valid for
Vulkan; Tint (Chrome) has to take each, and to make a pipeline of those that need no more than every adapter of WebGPU
has; and NVIDIA's compiler has to make PTX of each as printed for CUDA, and the machine code that is asked for. Nothing
is run. Ends with 1 where a shader is refused, where a compiler is missing, and where no kernel is made of a file of
``shaders``.
"""

import argparse
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

from compilers import ENVIRONMENT, Verdict, missing_tools

from optirs_web.translations.naga import TARGETS, VERSION

_TESTS = Path(__file__).parents[1]

_PROCESSES = 2


def main() -> None:
    """Compile all, and say what was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="print each shader with the bytes of its translations")
    parser.add_argument(
        "--machine-code",
        nargs="+",
        default=(),
        metavar="ARCH",
        help="NVIDIA's compiler makes it for these, too; minutes",
    )
    arguments = parser.parse_args()
    missing = missing_tools()
    if missing:
        sys.exit("the shaders cannot be checked without\n  " + "\n  ".join(missing))
    start = time.perf_counter()
    sys.path[:0] = [str(_TESTS), str(_TESTS.with_name("examples"))]  # the tables of the tests, and what they import
    from shares import begin, share

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PROCESSES, context, begin, (context.Value("i", 0),)) as pool:
        shares = [future.result() for future in [pool.submit(share, arguments.machine_code) for _ in range(_PROCESSES)]]
    verdicts = {verdict.digest: verdict for share in shares for verdict in share.verdicts}
    refused = [verdict.refused for verdict in verdicts.values() if verdict.refused]
    refused += dict.fromkeys(message for share in shares for message in share.refused)
    unused = set.intersection(*(share.unused for share in shares))
    refused += [f"shaders/{'/'.join(file)}.wgsl: no kernel is made of it; add a program that does" for file in unused]
    others = sum(not verdict.is_for_nvidia for verdict in verdicts.values())
    if arguments.verbose:
        _print_table(verdicts.values())
    print("\n".join(refused), file=sys.stderr, end="\n" if refused else "")
    print(
        f"{len(verdicts):,} shaders, {len(refused)} refused: naga {VERSION} ({', '.join(TARGETS)}), spirv-val "
        f"{_version()} ({ENVIRONMENT}; {sum(verdict.later for verdict in verdicts.values())} as SPIR-V 1.3 alone), "
        f"Tint (webgpu {shares[0].tint}), NVRTC {version('nvidia-cuda-nvrtc')} "
        f"({', '.join(('ptx', *arguments.machine_code))}; not {others} for software adapters); "
        f"{time.perf_counter() - start:.0f} s"
    )
    sys.exit(bool(refused))


def _version() -> str:
    done = subprocess.run(["spirv-val", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[1]


def _print_table(verdicts: Iterable[Verdict]) -> None:
    """Bytes by shader and target."""
    print(*(f"{target:>8}" for target in TARGETS), " shader")
    for verdict in sorted(verdicts):
        print(*(f"{verdict.sizes.get(target, 0):>8,}" for target in TARGETS), f" {verdict.name}")


if __name__ == "__main__":
    main()
