"""What `ow.compile` makes of the training step of examples/gpt.py: dispatches, memory, submits, bytes read back.

With the kernels that a GPU is given: on a software adapter attention is otherwise by products, which is faster there.

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
    found = ow.explain(step)
    batch = next(batches)
    device.synchronize()
    before = device.stats.copy()
    step(*batch)
    device.flush()
    spent = device.stats - before
    called, replayed = found.called, found.replayed
    print(f"\n{called.dispatches / replayed.dispatches:.2f} times fewer dispatches")
    print(f"{called.memory / replayed.memory:.2f} times less memory for what is in between")
    print(f"a replay: {spent.submits} submit, {spent.bytes_down} bytes read back")


if __name__ == "__main__":
    main(*sys.argv[1:])
