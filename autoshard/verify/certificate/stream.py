"""The numbers of a certificate, one after the other. The bytes may be anybody's, so nothing about them is assumed."""

import json
import lzma
import zlib
from typing import Any

import numpy as np

FORMATS = tuple(f"autoshard-certificate-{number}" for number in (1, 2, 3, 4, 5))
"""The numbers are an xz stream in the first, which earlier versions wrote, and a zlib stream in the others."""
MOST_BYTES = 2**27
"""Certificates that unpack to more are refused: a few KB can unpack to GBs, and each byte may be a number of eight."""
_PIECE = 2**20
"""Bytes of numbers that are read at once."""
MOST_HEAD = 100_000
"""The most bytes of the line of JSON at the beginning."""


class CertificateFault(Exception):
    """A certificate does not prove what it claims; the message says where and why."""


class Stream:
    """The whole numbers of a certificate, in order; `at`: how many are read. head: the line of JSON before them.

    Everything that reads raises `CertificateFault` where the numbers end too early.
    """

    def __init__(self, data: bytes) -> None:
        line, mark, body = data[: MOST_HEAD + 1].partition(b"\n")
        if not mark:
            raise CertificateFault("not a certificate: it has no first line of JSON")
        try:
            head = json.loads(line)
        except (ValueError, RecursionError):
            raise CertificateFault("not a certificate: its first line is not JSON") from None
        if not isinstance(head, dict) or head.get("format") not in FORMATS:
            format_ = head.get("format") if isinstance(head, dict) else head
            raise CertificateFault(
                f"not a certificate that is known here: format {str(format_)[:60]!r}, not {' or '.join(FORMATS)}"
            )
        if "bound" not in head:
            raise CertificateFault("its first line does not say which bound it proves")
        bound = head["bound"]
        if bound is not None and type(bound) is not int:
            raise CertificateFault(f"bound is {bound!r}, not a whole number or null")
        self.head: dict[str, Any] = head
        body = data[len(line) + 1 :]
        self.numbers = unpacked(_unzipped(body, head["format"]))
        self.at = 0

    def one(self) -> int:
        """The next number."""
        if self.at >= len(self.numbers):
            raise CertificateFault("its numbers end in the middle of a step")
        self.at += 1
        return int(self.numbers[self.at - 1])

    def peek(self) -> int | None:
        """The next number, which stays the next one; None where all are read."""
        return None if self.over else int(self.numbers[self.at])

    def count(self, most: int, what: str) -> int:
        """The next number, which counts something of which there are at most `most`."""
        number = self.one()
        if not 0 <= number <= most:
            raise CertificateFault(f"{what} is {number}; from 0 to {most} is possible")
        return number

    def some(self, count: int) -> np.ndarray:
        """The next `count` numbers (int64)."""
        if self.at + count > len(self.numbers):
            raise CertificateFault("its numbers end in the middle of a step")
        self.at += count
        return self.numbers[self.at - count : self.at]

    @property
    def over(self) -> bool:
        """Whether all numbers are read."""
        return self.at == len(self.numbers)


def _unzipped(body: bytes, format_: str) -> bytes:
    unpacker = zlib.decompressobj()
    if format_ == FORMATS[0]:
        unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=2**28)
    try:
        raw = unpacker.decompress(body, MOST_BYTES)
    except (zlib.error, lzma.LZMAError, MemoryError, EOFError) as problem:
        raise CertificateFault(f"its numbers cannot be unpacked: {problem}") from None
    if not unpacker.eof:
        raise CertificateFault("its numbers are cut off, or too many")
    return raw


def unpacked(raw: bytes) -> np.ndarray:
    """Whole numbers (int64) from bytes: groups of seven bits, the lowest first, signs folded in (0, -1, 1, -2, ...)."""
    data = np.frombuffer(raw, dtype=np.uint8)
    if not len(data):
        return np.zeros(0, dtype=np.int64)
    if data[-1] >= 128:
        raise CertificateFault("its numbers end in the middle of one")
    out = np.empty(int(np.count_nonzero(data < 128)), dtype=np.int64)
    begin = done = 0
    while begin < len(data):
        ends = np.flatnonzero(data[begin : begin + _PIECE] < 128)
        if not len(ends):
            raise CertificateFault("one of its numbers has more than 64 bits")
        stop = begin + int(ends[-1]) + 1
        out[done : done + len(ends)] = _numbers(data[begin:stop], ends)
        begin, done = stop, done + len(ends)
    return out


def _numbers(data: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The numbers in whole groups of bytes; ends: the place of the last byte of each."""
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if int(lengths.max()) > 10:
        raise CertificateFault("one of its numbers has more than 64 bits")
    folded = np.zeros(len(ends), dtype=np.uint64)
    for k in range(int(lengths.max())):
        mine = lengths > k
        folded[mine] |= (data[starts[mine] + k] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * k)
    half = (folded >> np.uint64(1)).astype(np.int64)
    return np.where(folded & np.uint64(1), -1 - half, half)
