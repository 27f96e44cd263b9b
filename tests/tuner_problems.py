"""Helpers of the tests of the tuner: computations, and reading and writing of its cache folder."""

import json

import numpy as np

from optirs_web.runtime import kept
from optirs_web.runtime.products import Tile
from optirs_web.runtime.tuner.candidates import TUNABLE
from optirs_web.runtime.tuner.records import Record, figure_of
from optirs_web.runtime.tuner.switch import subject_of

TILE = Tile(64, 64, 4, 4, 16)


def random(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def names_of(cache):
    """The names of the choices in the file."""
    file = cache / "optirs-web" / "measured.json"
    return (
        sorted(name for figures in json.loads(file.read_text()).values() for name in figures) if file.exists() else []
    )


def keep(device, shape_class="64x64x256 nn", choice=TILE):
    """Save a choice as a search does, whatever is fastest here."""
    record = Record(TUNABLE["matmul"], shape_class, choice)
    kept.store(subject_of(device.info), {record.name: figure_of(record, {choice: 1e-3})})
