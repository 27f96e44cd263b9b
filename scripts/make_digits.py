"""Make optirs_web/datasets/digits.csv.gz: scikit-learn's copy of the UCI handwritten digits, with folds.

    python scripts/make_digits.py [PATH/TO/sklearn/datasets/data/digits.csv.gz]

Without an argument the file is looked for in an installed scikit-learn. Folds are stratified and depend on
nothing but the seed: the images of a class are put in the order of SHA-256("seed:row") and dealt out to folds
in turn, the next class going on where the last one stopped, so that classes and folds are both even to within
one image.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib.util
import io
import sys
from collections import Counter
from pathlib import Path

SEED = 20261121
FOLDS = 5
PIXELS = 64
CLASS_COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
TARGET = Path(__file__).resolve().parent.parent / "optirs_web" / "datasets" / "digits.csv.gz"


def main() -> None:
    """Read the source, check it, write the target, print the class counts of each fold."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else find_source()
    labels, images = read(source)
    folds = deal(labels)
    TARGET.write_bytes(compress(render(labels, folds, images)))
    print_counts(labels, folds)


def find_source() -> Path:
    """The file inside an installed scikit-learn, found without importing it."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        sys.exit("scikit-learn is not installed: install it, or give the path of its datasets/data/digits.csv.gz")
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


def read(source: Path) -> tuple[list[int], list[list[int]]]:
    """Labels and images of scikit-learn's file (rows of 64 pixels and the label); exits on any surprise."""
    with gzip.open(source, "rt", newline="") as file:
        rows = [[int(field) for field in row] for row in csv.reader(file)]
    labels, images = [row[-1] for row in rows], [row[:-1] for row in rows]
    counts = Counter(labels)
    if [counts[digit] for digit in range(10)] != CLASS_COUNTS or len(counts) != 10:
        sys.exit(f"{source}: the class counts are {dict(counts)}, not {CLASS_COUNTS}")
    if any(len(image) != PIXELS or not all(0 <= pixel <= 16 for pixel in image) for image in images):
        sys.exit(f"{source}: an image is not {PIXELS} pixels from 0 to 16")
    return labels, images


def deal(labels: list[int]) -> list[int]:
    """The fold of each image."""
    order = sorted(range(len(labels)), key=lambda row: (labels[row], shuffle_key(row)))
    folds = [0] * len(labels)
    for number, row in enumerate(order):
        folds[row] = number % FOLDS
    return folds


def shuffle_key(row: int) -> bytes:
    """A hash, and no library's generator, so that the folds are the same with every version of everything."""
    return hashlib.sha256(f"{SEED}:{row}".encode()).digest()


def render(labels: list[int], folds: list[int], images: list[list[int]]) -> str:
    """The CSV text, rows in the order of the source."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["label", "fold", *(f"pixel{i}" for i in range(PIXELS))])
    for label, fold, image in zip(labels, folds, images, strict=True):
        writer.writerow([label, fold, *image])
    return text.getvalue()


def compress(text: str) -> bytes:
    """Gzip without a name or a time in its header, so that the same text gives the same file."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(text.encode("ascii"))
    return packed.getvalue()


def print_counts(labels: list[int], folds: list[int]) -> None:
    """The table of the README beside the data."""
    counts = Counter(zip(folds, labels, strict=True))
    print("| fold |", " | ".join(map(str, range(10))), "| images |")
    print("|---" * 12 + "|")
    for fold in range(FOLDS):
        row = [counts[fold, digit] for digit in range(10)]
        print(f"| {fold} |", " | ".join(map(str, row)), f"| {sum(row)} |")


if __name__ == "__main__":
    main()
