"""Watch GPU memory"""

import optirs_web as ow


def show(label):
    stats = ow.memory_stats()
    print(f"{label:28} live {stats.live_bytes / 2**20:6.1f} MiB, pooled {stats.pooled_bytes / 2**20:6.1f} MiB")


show("initially")
a = ow.ones((1024, 1024))
b = a + a
show("two matrices of 4 MiB")
del b
show("one is freed")
b = a * 3
show("its memory is reused")
del a, b

# With a limit, running out of memory is an error that says what to do.
ow.set_memory_limit(ow.memory_stats().live_bytes + ow.memory_stats().pooled_bytes + (1 << 20))
try:
    ow.zeros((2048, 2048))
except ow.errors.OutOfDeviceMemoryError as error:
    print(error)
finally:
    ow.set_memory_limit(None)
