"""`PYTHONPATH=tests python -m software_cuda parity --device cuda`: a command of optirs-web with the driver in software.

Where there is NVIDIA's own driver, the command takes that.
"""

import software_cuda
from optirs_web.cli.commands import cli

with software_cuda.shown():
    cli(prog_name="optirs-web")
