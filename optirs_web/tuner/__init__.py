"""The functions that tune kernels: `tune`, which searches, and `tuning`, which says whether choices are used.

What is chosen, and how, is in `optirs_web.runtime.tuner`.
"""

from .report import TuningReport, Work
from .session import tune, tune_async, tuning, tuning_async

__all__ = ["TuningReport", "Work", "tune", "tune_async", "tuning", "tuning_async"]
