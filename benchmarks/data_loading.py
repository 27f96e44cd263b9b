"""Steps per second of a loop that reads the loss of each step, with and without `DataLoader(prefetch=True)`.

With it, the next batch is uploaded before the loop waits for the loss. Rounds alternate, so that their ratio holds on a
busy machine too. A software adapter computes on the same cores as the host, and gains less than a GPU would.
"""

import argparse
import statistics
import time

import numpy as np

import optirs_web as ow

SAMPLES, FEATURES, CLASSES, BATCH = 4096, 784, 10, 128


def training(device):
    """Return a compiled training step of a perceptron."""
    ow.manual_seed(0)
    model = ow.nn.Sequential(ow.nn.Linear(FEATURES, 256), ow.nn.ReLU(), ow.nn.Linear(256, CLASSES)).to(device)
    optimizer = ow.optim.AdamW(model.parameters(), lr=1e-3)

    def train_step(x, labels):
        optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return ow.compile(train_step, device=device)


class Augmented:
    """A data set of 8-bit images, which it shifts and scales on the host."""

    def __init__(self, rng):
        self.images = rng.integers(0, 256, (SAMPLES, 28, 28), np.uint8)
        self.labels = rng.integers(0, CLASSES, SAMPLES).astype(np.int32)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        shifted = np.roll(self.images[index], index % 5 - 2, axis=1)
        return (shifted.reshape(-1) / 255).astype(np.float32), int(self.labels[index])


def steps_per_second(step, loader):
    start, steps = time.perf_counter(), 0
    for x, labels in loader:
        step(x, labels).item()
        steps += 1
    return steps / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    device = ow.device(arguments.device)
    step, data = training(device), Augmented(np.random.default_rng(0))
    loaders = {
        prefetch: ow.nn.DataLoader(data, BATCH, shuffle=True, device=device, prefetch=prefetch)
        for prefetch in (False, True)
    }
    steps_per_second(step, loaders[True])
    rates = {prefetch: [] for prefetch in loaders}
    for _ in range(arguments.rounds):
        for prefetch, loader in loaders.items():
            rates[prefetch].append(steps_per_second(step, loader))
    without, prefetched = (statistics.median(rates[prefetch]) for prefetch in (False, True))
    print(f"{device}: batches of {BATCH} x {FEATURES}, picked one by one; the loss is read in each step")
    print(f"without prefetch {without:6.1f} steps/s")
    print(f"with prefetch    {prefetched:6.1f} steps/s, {prefetched / without:.2f} times as many")


if __name__ == "__main__":
    main()
