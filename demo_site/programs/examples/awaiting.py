"""Await instead of blocking"""

import asyncio

import optirs_web as ow

# Every call that waits has an awaitable twin. Browsers without JSPI have these only.
x = ow.tensor([1.0, 2.0, 3.0])
print("tolist", await (x * 2).tolist_async())

# Several reads can wait together.
sums = [(x * factor).sum() for factor in range(5)]
print("sums  ", await asyncio.gather(*(total.item_async() for total in sums)))

await ow.device().synchronize_async()
print("done")
