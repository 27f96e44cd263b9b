"""Compare the replacement of a kernel on the `xla` device with that on `cpu`, on the same bytes."""

from functools import partial

import jax
import numpy as np

from optirs_web.native_backends.cpu.numpy import library as numpy_library
from optirs_web.native_backends.xla import library as xla_library
from optirs_web.native_backends.xla.bindings import element_type
from optirs_web.native_backends.xla.programs import quick_options
from optirs_web.runtime.kernels import cooperative

__all__ = ["Comparison"]

TOLERANCE = 2e-5
LOOSER = {"eigenvectors": 2e-4, "inverse_root_start": 5e-5}


class Comparison:
    """Runs both for every launch of some cooperative kernels on `cpu`, and compares what they leave.

    Args:
        monkeypatch: for how long.
        names: of the kernels.

    Attributes:
        launches: how many of each kernel were compared.
        differences: sentences.
    """

    def __init__(self, monkeypatch, names):
        self.launches = {}
        self.differences = []
        self._compiled = {}
        for name in names:
            replacement = partial(self._run, name, numpy_library.REPLACEMENTS[name])
            monkeypatch.setitem(numpy_library.REPLACEMENTS, name, replacement)

    def _run(self, name, replacement, p, *arrays):
        before = [array.copy() for array in arrays]
        replacement(p, *arrays)
        self.launches[name] = self.launches.get(name, 0) + 1
        bindings = cooperative(name).bindings
        inputs = [content.view(element_type(binding.type)) for content, binding in zip(before, bindings, strict=True)]
        result = self._call(name, p, inputs)
        written = [(binding, array) for binding, array in zip(bindings, arrays, strict=True) if binding.writes]
        assert len(result) == len(written)
        for (binding, array), other in zip(written, result, strict=True):
            want = array.view(element_type(binding.type))
            got = np.asarray(other).view(want.dtype)
            assert got.shape == want.shape
            self._compare(name, p, binding, want, got)

    def _call(self, name, p, given):
        traced = xla_library.TRACED.get(name, frozenset())
        fixed = {key: value for key, value in p.items() if key not in traced}
        rest = {key: np.array(value, np.uint32) for key, value in p.items() if key in traced}
        key = name, tuple(fixed.items()), tuple(array.size for array in given)
        if key not in self._compiled:
            function = xla_library.REPLACEMENTS[name]
            traced = jax.jit(lambda rest, *arrays: function(fixed | rest, *arrays)).trace(rest, *given)
            assert "callback" not in traced.lower(lowering_platforms=("tpu",)).as_text()
            self._compiled[key] = traced.lower().compile(dict(quick_options()))
        return self._compiled[key](rest, *given)

    def _compare(self, name, p, binding, want, got):
        if want.dtype != np.float32:
            is_same = np.array_equal(want, got)
        else:
            size = np.abs(want[np.isfinite(want)]).max(initial=0)
            tolerance = LOOSER.get(name, TOLERANCE)
            if name == "eigenvectors":
                want, got = np.abs(want), np.abs(got)  # of either sign
            is_same = np.allclose(got, want, rtol=tolerance, atol=tolerance * min(size, 1e30), equal_nan=True)
        if not is_same:
            worst = np.abs(got.astype(np.float64) - want).max()
            self.differences.append(f"{name} left another {binding.name}, by up to {worst:.3g}, with {dict(p)}")
