"""Helpers of the tests of the tuner: computations, and reading and writing of its cache folder."""

import numpy as np

from optirs_web.runtime.products import Tile
from optirs_web.runtime.tuner.candidates import TUNABLE
from optirs_web.runtime.tuner.folder import Folder
from optirs_web.runtime.tuner.records import Record, key_of, record_text

TILE = Tile(64, 64, 4, 4, 16)


def random(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def names_of(cache):
    return sorted(path.name for path in cache.glob("optirs-web/tuned/*/*"))


def keep(device, shape_class="64x64x256 nn", choice=TILE):
    """Save a choice as a search does, whatever is fastest here."""
    record = Record(TUNABLE["matmul"], shape_class, choice)
    Folder(key_of(device.info)).save(record.name, record_text(record, device.info, {choice: 1e-3}))
