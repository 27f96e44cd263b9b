"""Time the first use of an operation: the processor seconds, of all threads, that compile its kernels.

Each operation runs in a new process with empty caches on disk, and in a second one with the caches of the first.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

OPERATIONS = {
    "exp": "x.exp()",
    "softmax (barriers)": "x.softmax(axis=-1)",
    "product": "x @ x",
    "attention": "ow.nn.functional.scaled_dot_product_attention(y, y, y)",
}
PROGRAM = """
import json, time
import optirs_web as ow
device = ow.device({device!r})
x, y = ow.ones((64, 64), device=device), ow.ones((1, 2, 16, 16), device=device)
(-x).tolist()  # the costs of a device's first kernel
before, start = device.stats.copy(), time.process_time()
result = {operation}
device.synchronize()
seconds = time.process_time() - start
print(json.dumps([(device.stats - before).pipelines, seconds]))
"""


def measure(device, operation, folder):
    """Run an operation in a new process; return the number of kernels that it compiled, and the seconds."""
    program = PROGRAM.format(device=device, operation=operation)
    environment = {**os.environ, "XDG_CACHE_HOME": folder, "POCL_CACHE_DIR": os.path.join(folder, "pocl")}
    environment |= {"PYOPENCL_NO_CACHE": "1", "MESA_SHADER_CACHE_DIR": folder}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="opencl")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{arguments.device:20}{'kernels':>8}{'first s':>10}{'again s':>10}   (medians of {arguments.rounds})")
    for name, operation in OPERATIONS.items():
        runs = []
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as folder:
                runs.append([measure(arguments.device, operation, folder) for _ in range(2)])
        first, again = (statistics.median(run[number][1] for run in runs) for number in range(2))
        print(f"{name:20}{runs[0][0][0]:8}{first:10.3f}{again:10.3f}")


if __name__ == "__main__":
    main()
