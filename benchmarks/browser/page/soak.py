"""Training for the soak test, and counts of the objects and buffers that Python holds."""

import asyncio
import gc
import json

import training

import optirs_web as ow


async def create():
    await training.open_device()
    return training.Training()


async def alive():
    gc.collect()
    await asyncio.sleep(0)
    stats = ow.memory_stats()
    held = {
        "pythonObjects": len(gc.get_objects()),
        "liveBuffers": stats.live_buffers,
        "liveBytes": stats.live_bytes,
        "pooledBytes": stats.pooled_bytes,
    }
    return json.dumps(held)
