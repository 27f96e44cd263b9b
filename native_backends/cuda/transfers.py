"""Bytes between the host and a GPU, by way of page-locked memory of the host.

For other memory of the host CUDA does not say when a copy has read it, and a copy may wait for all work.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterator

from . import driver

__all__ = ["Later", "Transfers"]

_PIECE = 4 << 20
"""Bytes of a piece: while one is copied by the GPU, the host fills or empties another."""

_PIECES = 2

_ALIGNED = 16


class _Piece:
    """Page-locked memory, and when the GPU is done with it."""

    def __init__(self, nbytes: int) -> None:
        """Ask the driver for it."""
        self.done = driver.create_event()
        try:
            self.address = driver.allocate_on_host(nbytes)
        except driver.CudaError:
            driver.destroy_event(self.done)
            raise
        self.nbytes = nbytes
        self.bytes = memoryview((ctypes.c_ubyte * nbytes).from_address(self.address)).cast("B")

    def close(self) -> None:
        self.bytes.release()
        driver.free_on_host(self.address)
        driver.destroy_event(self.done)


class Later:
    """Bytes that are on their way to the host."""

    def __init__(self, transfers: Transfers, nbytes: int) -> None:
        """Made by `Transfers.receive_later`."""
        self._transfers = transfers
        self._nbytes = nbytes
        self.pieces: deque[tuple[_Piece, int]] = deque()

    def content(self) -> bytearray:
        """Wait for the bytes and return them. Called once: the pieces are then used for other reads."""
        content = bytearray(self._nbytes)
        at = 0
        while self.pieces:
            piece, nbytes = self.pieces[0]
            driver.await_event(piece.done)
            content[at : at + nbytes] = piece.bytes[:nbytes]
            at += nbytes
            self.pieces.popleft()
            self._transfers.idle.append(piece)
        return content

    def __del__(self) -> None:
        """Keep the pieces of a read that nobody waited for until the GPU no longer writes them."""
        while self.pieces:
            self._transfers.abandoned.append(self.pieces.popleft()[0])


class Transfers:
    """Copies between the host and the device, enqueued in one stream.

    Attributes:
        idle: pieces that nobody uses.
        abandoned: pieces that the GPU may still write, and nobody waits for.
    """

    def __init__(self, stream: driver.Handle) -> None:
        """Allocate no memory: pieces are made at the first copy."""
        self._stream = stream
        self._made: set[_Piece] = set()
        self._sending: deque[_Piece] = deque()  # the one that is being filled comes last
        self._filled = 0
        self.idle: list[_Piece] = []
        self.abandoned: list[_Piece] = []

    def send(self, target: int, data: memoryview) -> None:
        """Enqueue a copy of `data`, a view of bytes, to the device address `target`. It may be changed on return."""
        at = 0
        while at < data.nbytes:
            piece = self._to_fill()
            part = data[at : at + piece.nbytes - self._filled]
            piece.bytes[self._filled : self._filled + part.nbytes] = part
            driver.upload(target + at, piece.address + self._filled, part.nbytes, self._stream)
            self._filled += -(-part.nbytes // _ALIGNED) * _ALIGNED
            at += part.nbytes

    def _to_fill(self) -> _Piece:
        """A piece with room."""
        if self._sending and self._filled < self._sending[-1].nbytes:
            return self._sending[-1]
        if self._sending:
            driver.record_event(self._sending[-1].done, self._stream)
        if len(self._sending) < _PIECES:
            self._sending.append(self._another())
        else:
            self._sending.rotate(-1)
            driver.await_event(self._sending[-1].done)
        self._filled = 0
        return self._sending[-1]

    def receive(self, source: int, nbytes: int) -> bytearray:
        """Return bytes from the device address `source`, after all that was enqueued has run."""
        content = bytearray(nbytes)
        waiting: deque[tuple[_Piece, int, int]] = deque()
        try:
            for at, length in _parts(nbytes):
                if len(waiting) == _PIECES:
                    self._take_oldest(waiting, content)
                piece = self._coming(source + at, length)
                waiting.append((piece, at, length))
            while waiting:
                self._take_oldest(waiting, content)
        finally:
            self.abandoned += [piece for piece, _, _ in waiting]  # where a copy has failed
        return content

    def _take_oldest(self, waiting: deque[tuple[_Piece, int, int]], content: bytearray) -> None:
        piece, at, length = waiting[0]
        driver.await_event(piece.done)
        content[at : at + length] = piece.bytes[:length]
        self.idle.append(piece)
        waiting.popleft()

    def receive_later(self, source: int, nbytes: int) -> Later:
        """Enqueue a copy to the host, and return what waits for its bytes."""
        later = Later(self, nbytes)
        for at, length in _parts(nbytes):
            later.pieces.append((self._coming(source + at, length), length))
        return later

    def _coming(self, source: int, nbytes: int) -> _Piece:
        """A piece that the GPU is to fill."""
        piece = self.idle.pop() if self.idle else self._another()
        try:
            driver.download(piece.address, source, nbytes, self._stream)
            driver.record_event(piece.done, self._stream)
        except driver.CudaError:
            self.abandoned.append(piece)
            raise
        return piece

    def _another(self) -> _Piece:
        piece = _Piece(_PIECE)
        self._made.add(piece)
        return piece

    def waited(self) -> None:
        """All that was enqueued has run: keep no more memory than is needed for the next time."""
        self.idle += self.abandoned
        self.abandoned.clear()
        while len(self.idle) > _PIECES:
            piece = self.idle.pop()
            self._made.discard(piece)
            piece.close()

    def close(self) -> None:
        """Give all memory back, that of reads too for which nobody has waited yet. All that was enqueued has run."""
        for piece in self._made:
            piece.close()
        self._made.clear()
        self._sending.clear()
        self.idle.clear()
        self.abandoned.clear()


def _parts(nbytes: int) -> Iterator[tuple[int, int]]:
    """Where each piece begins, and how long it is."""
    for at in range(0, nbytes, _PIECE):
        yield at, min(_PIECE, nbytes - at)
