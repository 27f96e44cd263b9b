"""Compare the full runs of `examples/` on `cpu` with torch, from the same weights over the same batches.

Prints the largest difference of a loss; `tests/test_examples.py` checks the first hundred steps of smaller models.
Needs torch, and about three minutes.
"""

import argparse
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import torch

import optirs_web as ow
from optirs_web.benchmarks import torch_models

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "examples"))

import gpt  # noqa: E402
import resnet  # noqa: E402
import vae  # noqa: E402

LIMIT = 0.01
SEED = 0


def compare(module, name, data, steps, **options):
    """Train both models; return the largest relative difference of a loss from torch's, and torch's losses."""
    ow.manual_seed(SEED)
    model = getattr(module, name)(**options, device="cpu")
    twin = getattr(torch_models, name)(**options)
    twin.load_state_dict({key: torch.tensor(tensor.numpy()) for key, tensor in model.state_dict().items()})
    ow.manual_seed(SEED)
    batches = [
        [torch.tensor(tensor.numpy()) for tensor in batch]
        for batch in islice(module.batches(model, *data, module.BATCH), steps)
    ]
    ow.manual_seed(SEED)
    ours = [loss.item() for loss in module.train(model, *data, steps, module.BATCH)]
    optimizer, theirs = twin.optimizer(), []
    for batch in batches:
        optimizer.zero_grad()
        loss = twin.loss(*batch)
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    return max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True)), theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help=f"fail where a loss is more than {100 * LIMIT:g}%% from torch's"
    )
    arguments = parser.parse_args()
    digits, book = ow.datasets.load_digits(), ow.datasets.load_book()
    alphabet = gpt.Alphabet(book)
    runs = [
        (vae, "VAE", (digits.train_images,), 600, {}),
        (resnet, "ResNet", (digits.train_images, digits.train_labels), 200, {}),
        (gpt, "GPT", (np.array(alphabet.codes(book)),), 600, {"characters": len(alphabet.characters)}),
    ]
    worst = 0.0
    print(f"{'model':8}{'steps':>6}{'first loss':>12}{'last loss':>11}{'largest difference':>20}")
    for module, name, data, steps, options in runs:
        difference, losses = compare(module, name, data, steps, **options)
        worst = max(worst, difference)
        print(f"{name:8}{steps:6}{losses[0]:12.3f}{losses[-1]:11.3f}{difference:20.1e}", flush=True)
    if arguments.check and worst > LIMIT:
        sys.exit(f"a loss is {worst:.1%} from torch's; {LIMIT:.0%} is the limit")


if __name__ == "__main__":
    main()
