"""Count what the compiled training step of examples/gpt.py does: dispatches, memory, submits, bytes read back.

It selects the kernels of a GPU: on a software adapter, attention would be computed by products, which is faster there.

python benchmarks/captured_step.py [device]
"""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import gpt

import optirs_web as ow


def main(name="vulkan"):
    device = ow.device(name)
    device.capabilities = replace(device.capabilities, quads=False)
    ow.manual_seed(0)
    book = ow.datasets.load_book()
    alphabet = gpt.Alphabet(book)
    model = gpt.GPT(len(alphabet.characters), device=device)
    step = gpt.train_step(model, ow.optim.AdamW(model.parameters(), lr=gpt.RATE))
    batches = gpt.batches(model, alphabet.codes(book))
    step(*next(batches))
    explained = ow.explain(step)
    batch = next(batches)
    device.synchronize()
    before = device.stats.copy()
    step(*batch)
    device.flush()
    stats = device.stats - before
    print(explained)
    called, replayed = explained.called, explained.replayed
    print(f"\n{called.dispatches / replayed.dispatches:.2f} times fewer dispatches")
    print(f"{called.memory / replayed.memory:.2f} times less memory for intermediate results")
    print(f"a replay: {stats.submits} submit, {stats.bytes_down} bytes read back")


if __name__ == "__main__":
    main(*sys.argv[1:])
