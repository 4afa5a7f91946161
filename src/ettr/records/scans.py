"""The scans of a JPEG: where each ends, and how a picture becomes progressive without a loss."""

from __future__ import annotations

import re
import shutil
import subprocess

from ettr.errors import EttrError

END_OF_IMAGE = b"\xff\xd9"
_START_OF_IMAGE = b"\xff\xd8"
_START_OF_SCAN = 0xDA
_END = 0xD9
# a marker within entropy-coded data: not a stuffed zero, a restart marker or a fill byte
_MARKER = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")
_LONGEST_S = 60.0
_MOST_SEQUENTIAL = 4  # scans of a sequential file: one a component
_MOST_SCANS = 100
"""A hostile file can hold thousands of scans, each a pass over the whole picture."""


class JpegError(EttrError):
    """Bytes are not a JPEG that can be taken apart."""


def scan_ends(jpeg: bytes) -> tuple[int, ...]:
    """Offsets at which the scans of a JPEG end; any of them plus an end mark is a JPEG.

    What stands before a scan (tables, headers) belongs to it.

    Raises:
        JpegError: the bytes are no JPEG, are cut, or hold more than 100 scans.

    Example:
        >>> from ettr.records import scan_ends
        >>> scan_ends(b"")
        Traceback (most recent call last):
        ...
        ettr.records.scans.JpegError: not a JPEG: it begins with no start mark
    """
    if not jpeg.startswith(_START_OF_IMAGE):
        raise JpegError("not a JPEG: it does not begin with a start marker")
    ends: list[int] = []
    place = 2
    while True:
        marker = _MARKER.match(jpeg, place)
        if marker is None:
            raise JpegError(f"a cut or damaged JPEG: no marker at byte {place}")
        kind = jpeg[marker.end() - 1]
        if kind == _END:
            if not ends:
                raise JpegError("a JPEG without a scan")
            return tuple(ends)
        length = int.from_bytes(jpeg[marker.end() : marker.end() + 2], "big")
        place = marker.end() + length
        if length < 2 or place > len(jpeg):
            raise JpegError(f"a cut or damaged JPEG: the segment at byte {marker.start()}")
        if kind == _START_OF_SCAN:
            following = _MARKER.search(jpeg, place)
            if following is None:
                raise JpegError(f"a cut JPEG: scan {len(ends) + 1} does not end")
            place = following.start()
            ends.append(place)
            if len(ends) > _MOST_SCANS:
                raise JpegError(f"a JPEG of more than {_MOST_SCANS} scans")


def progressive(jpeg: bytes) -> bytes:
    """The same pixels as a progressive JPEG, by `jpegtran`; one that is progressive stays.

    Only the coding of the coefficients changes: every pixel is the same, metadata are kept.

    Raises:
        JpegError: the bytes are no JPEG.
        EttrError: `jpegtran` is not installed.
    """
    if len(scan_ends(jpeg)) > _MOST_SEQUENTIAL:
        return jpeg
    return transcoded(jpeg, "-progressive")


def transcoded(jpeg: bytes, *options: str) -> bytes:
    """A JPEG coded again without a loss, tables optimised.

    Raises:
        JpegError: `jpegtran` refuses the bytes, or takes longer than a minute.
        EttrError: `jpegtran` is not installed.
    """
    tool = shutil.which("jpegtran")
    if tool is None:
        raise EttrError(
            "no `jpegtran`, which makes JPEGs progressive without loss: install it "
            "(Debian: libjpeg-turbo-progs), or give files that are progressive"
        )
    try:
        done = subprocess.run(
            [tool, "-copy", "all", "-optimize", *options],
            input=jpeg,
            capture_output=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise JpegError(f"jpegtran took longer than {_LONGEST_S:.0f} s") from None
    # 2 is a warning: the data are damaged, and what came out is a guess
    if done.returncode or not done.stdout.endswith(END_OF_IMAGE):
        message = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise JpegError(f"jpegtran: {message[-1] if message else 'no image came out'}")
    return done.stdout
