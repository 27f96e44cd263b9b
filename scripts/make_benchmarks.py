"""Write docs/benchmarks.md from the reports in optirs_web/benchmarks/reports.

`optirs-web bench --json`, `hardware --json` and `benchmarks/browser/steps.py --report` wrote these.

python scripts/make_benchmarks.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from optirs_web.benchmarks.report import markdown
from optirs_web.benchmarks.suite import REPORTS, Report

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"

INTRODUCTION = """\
# Benchmarks

`optirs-web bench` times the library next to others in one process; `make bench` runs it against what is installed of
torch, JAX, NumPy and tinygrad; `make bench-browser` does so in a page of Chromium with jax-js, TensorFlow.js and borch.
[How to read and repeat it](performance.md#the-benchmark-suite). The tables below are made from the reports in
`optirs_web/benchmarks/reports` by `make bench-docs`. Each shows all cases of its report: a share above 1 is a case that
this library loses. A case that a later run has measured again is in the table of that run alone, though the command
above the earlier table names its group. The site's page Compare shows the same. Of GPUs two have been measured, an
NVIDIA H100 and an H200; `make hardware` measures yours ([how](setup.md#measure-your-gpu)).

- *time*: the median of a call, or of a case of memory the most bytes in use.
- *share of the device*: the rate of a case, as a share of the device's copy, or of a product by the library named,
  timed in the same rounds. Above 100% the data lies in caches that the copy's 128 MiB do not fit.
- *share of torch's*: our time as a share of torch's, the median of rounds; where it spreads by more than 10% after
  three times the rounds, half the interquartile range stands after ±.
- Counts are of one call: dispatches in submits, bytes uploaded and downloaded, allocations, and *peak*, the most memory
  in use that was not before it.

Those of the H100 were stopped when time was up, and but for training were taken before its workgroups of 256 for long
rows. All others but those of the H200 were taken on two shared cores, those of `cpu` and `vulkan` with one thread for
every side: read the ratios with their spreads, and the counts, which noise does not touch; not the times. Start-up and
transfers were timed, and NumPy in place of Numba, on a day when the machine was slower.

"""


def page() -> str:
    """Return the page as the reports give it."""
    sections = [markdown(Report.read(path)) for path in REPORTS]
    return (INTRODUCTION + "\n".join(sections)).rstrip() + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text("utf-8") != page() and f"{PAGE} is not what its reports give: make bench-docs")
    PAGE.write_text(page(), "utf-8")
