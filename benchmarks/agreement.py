"""Compare the loss curves of two devices: the default digits run on both, with the same seed.

Prints the largest |difference| / max(loss, 0.05) over all epochs, for the training and the test loss.
"""

import sys

from optirs_web.training import Config, train_digits

FLOOR = 0.05
MEASURE = f"|difference| / max(loss, {FLOOR})"


def main(first="cpu", second="vulkan"):
    runs = [train_digits(Config(device=device)) for device in (first, second)]
    for figure in ("train_loss", "test_loss"):
        pairs = [[getattr(epoch, figure) for epoch in run.history] for run in runs]
        worst = max(abs(a - b) / max(a, FLOOR) for a, b in zip(*pairs, strict=True))
        print(f"{first} and {second}, {figure}: {worst:.1e} is the largest {MEASURE} at any of {len(pairs[0])} epochs")
    accuracies = ", ".join(f"{run.test_accuracy:.2%} on {run.device}" for run in runs)
    print(f"test accuracy {accuracies}")


if __name__ == "__main__":
    main(*sys.argv[1:])
