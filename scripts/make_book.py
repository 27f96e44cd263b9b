"""Make optirs_web/datasets/book.txt.gz: the first half of "Northanger Abbey", as Debian's r-cran-janeaustenr ships it.

    python scripts/make_book.py [PATH/TO/janeaustenr/data/Rdata.rdb]

Without an argument the Debian package is downloaded with `apt-get download` into a temporary folder and unpacked
there. The package holds each novel as a vector of lines, in R's serialization, compressed with zlib. Chapters 1 to 15
are taken, line by line as they are; the title page before them and the chapters after them are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

PACKAGE = "r-cran-janeaustenr"
INSIDE = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
TITLE = "NORTHANGER ABBEY"
FIRST, AFTER = "CHAPTER 1", "CHAPTER 16"
SHA256 = "3c5b9d9eb868ad2595a14524051a0275ac559d0fa6073e26ee64e0ec44fdf17a"
TARGET = Path(__file__).resolve().parent.parent / "optirs_web" / "datasets" / "book.txt.gz"

_CHARACTERS, _CHARACTER_VECTOR = 9, 16  # types of R's values, in the low byte of their first word
_VERSION_WITH_ENCODING = 3


def main() -> None:
    """Read the source, check it, write the target."""
    if len(sys.argv) > 1:
        text = chapters(Path(sys.argv[1]).read_bytes())
    else:
        with tempfile.TemporaryDirectory() as folder:
            text = chapters(download(Path(folder)).read_bytes())
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != SHA256:
        sys.exit(f"the text is not the one that the figures refer to: its SHA-256 is {digest}, not {SHA256}")
    TARGET.write_bytes(compress(text))
    print(f"{len(text):,} characters, {len(set(text))} different ones, {TARGET.stat().st_size:,} bytes packed")


def download(folder: Path) -> Path:
    """The file inside Debian's package."""
    subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True)
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg", "-x", package, folder], check=True)
    return folder / INSIDE


def chapters(database: bytes) -> str:
    """The chapters that are taken, their lines joined; exits where the novel is not as expected."""
    lines = next((lines for lines in novels(database) if lines[0] == TITLE), None)
    if lines is None or lines.count(FIRST) != 1 or lines.count(AFTER) != 1:
        sys.exit(f"there is no novel '{TITLE}' with one line '{FIRST}' and one '{AFTER}'")
    return "\n".join(lines[lines.index(FIRST) : lines.index(AFTER)]).rstrip("\n") + "\n"


def novels(database: bytes) -> list[list[str]]:
    """The values of R's database: one after the other, each the length that it unpacks to and a zlib stream."""
    texts = []
    while database:
        unpacking = zlib.decompressobj()
        texts.append(strings(unpacking.decompress(database[4:])))
        database = unpacking.unused_data
    return texts


def strings(serialized: bytes) -> list[str]:
    """A vector of strings, as "R Internals" 1.8 tells: big-endian words; of a string its type, length and bytes."""
    stream = io.BytesIO(serialized)

    def word() -> int:
        return int(struct.unpack(">i", stream.read(4))[0])

    version = (stream.read(2), word(), word(), word())[1]
    if version == _VERSION_WITH_ENCODING:
        stream.read(word())
    if word() & 0xFF != _CHARACTER_VECTOR:
        sys.exit("a novel is not a vector of lines")
    lines = []
    for _ in range(word()):
        if word() & 0xFF != _CHARACTERS:
            sys.exit("a line is not a string")
        lines.append(stream.read(word()).decode("utf-8"))
    return lines


def compress(text: str) -> bytes:
    """Gzip without a name or a time in its header, so that the same text gives the same file."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(text.encode("ascii"))
    return packed.getvalue()


if __name__ == "__main__":
    main()
