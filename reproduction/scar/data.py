"""The data sets of the reproduction, read from the forms in which they are passed around."""

import csv
import gzip
import lzma
import re
import struct
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError

F32 = NDArray[np.float32]
Ints = NDArray[np.int64]
WORD = re.compile(r"[a-z]{3,}")
MATRIX_LIMIT = 60_000_000  # cells; ratings are held as a dense matrix


def mnist(folder: Path) -> tuple[F32, Ints]:
    """The 60,000 training digits, pixels in 0 to 1, shape (60000, 784), and their labels.

    Args:
        folder: holds train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz.
    """
    images = _unpacked(folder / "train-images-idx3-ubyte.gz")
    labels = _unpacked(folder / "train-labels-idx1-ubyte.gz")
    _, count, height, width = struct.unpack(">4I", images[:16])
    pixels = np.frombuffer(images, dtype=np.uint8, offset=16).reshape(count, height * width)
    return (pixels / np.float32(255)).astype(np.float32), np.frombuffer(
        labels, dtype=np.uint8, offset=8
    ).astype(np.int64)


def covtype(folder: Path) -> tuple[F32, Ints]:
    """All 581,012 CoverType cells, ten features standardised and 44 of 0 or 1; classes from 0."""
    path = _found(folder / "covtype.csv.gz")
    with gzip.open(path, "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",", skiprows=1, dtype=np.float32)
    features = np.ascontiguousarray(table[:, :-1])
    numbers = features[:, :10]
    features[:, :10] = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    return features, table[:, -1].astype(np.int64) - 1


def jester(folder: Path) -> F32:
    """The ratings of Jester 1 part 1, shape (24983, 100), nan where a joke was not rated."""
    path = _found(folder / "jester-data-1.csv.gz")
    with gzip.open(path, "rt", encoding="utf-8-sig") as lines:
        rows = [row for row in csv.reader(lines) if row]
    table = np.array([[float(cell) for cell in row[1:101]] for row in rows], dtype=np.float32)
    return np.where(table == 99, np.float32(np.nan), table)


def movielens(path: Path) -> F32:
    """The ratings of a MovieLens file that the user has fetched, users by films, nan if not rated.

    Reads ratings.csv, ratings.dat (::) and u.data (tabs). MovieLens may not be passed on, so it is
    not among the data here.

    Raises:
        UsageError: the file is missing, or too large for a dense matrix.
    """
    text = _found(path).read_text(encoding="latin-1")
    rows = [re.split(r"::|[,\t]", line)[:3] for line in text.splitlines() if line[:1].isdigit()]
    users, user = np.unique([int(row[0]) for row in rows], return_inverse=True)
    films, film = np.unique([int(row[1]) for row in rows], return_inverse=True)
    if users.size * films.size > MATRIX_LIMIT:
        raise UsageError(
            f"{path} has {users.size} users and {films.size} films, more than {MATRIX_LIMIT} "
            "cells; give MovieLens 100K or 1M"
        )
    table = np.full((users.size, films.size), np.nan, dtype=np.float32)
    table[user, film] = [float(row[2]) for row in rows]
    return table


def reuters_395(folder: Path) -> tuple[Ints, Ints]:
    """The 395 Reuters documents in LDA-C form: the type of each token, tokens per document."""
    words: list[int] = []
    lengths: list[int] = []
    for line in _unpacked(folder / "reuters.ldac.gz").decode("ascii").splitlines():
        pairs = [pair.split(":") for pair in line.split()[1:]]
        words += [int(word) for word, count in pairs for _ in range(int(count))]
        lengths.append(sum(int(count) for _, count in pairs))
    return np.array(words), np.array(lengths)


def newsgroups(folder: Path) -> tuple[Ints, Ints]:
    """20 Newsgroups by date, train and test: bodies, types in 10 documents to half of them."""
    path = _found(folder / "20news-bydate.tar.xz")
    return _corpus(body.partition("\n\n")[2] for body in _members(path))


def reuters_21578(folder: Path) -> tuple[Ints, Ints]:
    """Reuters-21578: the bodies of its stories, types in 10 documents to half of them."""
    path = _found(folder / "reuters21578.tar.xz")
    body = re.compile(r"<BODY>(.*?)</BODY>", re.DOTALL)
    return _corpus(story for text in _members(path, ending=".sgm") for story in body.findall(text))


def shakespeare(folder: Path) -> tuple[Ints, int]:
    """tiny-shakespeare as character numbers, and how many distinct characters there are."""
    text = _unpacked(folder / "input.txt.gz")
    letters, numbers = np.unique(np.frombuffer(text, dtype=np.uint8), return_inverse=True)
    return numbers.astype(np.int64), int(letters.size)


def _corpus(texts: Iterable[str]) -> tuple[Ints, Ints]:
    """Tokens [a-z]{3,} of lower-case text, rare and common types and empty documents dropped."""
    documents = [WORD.findall(text.lower()) for text in texts]
    spread = Counter(word for document in documents for word in set(document))
    kept = sorted(w for w, n in spread.items() if 10 <= n <= 0.5 * len(documents))
    number = {word: index for index, word in enumerate(kept)}
    coded = [[number[word] for word in document if word in number] for document in documents]
    coded = [document for document in coded if document]
    return (
        np.array([word for document in coded for word in document]),
        np.array([len(document) for document in coded]),
    )


def _members(path: Path, ending: str = "") -> Iterator[str]:
    """The text of each file in a tar.xz, in the order of their names."""
    with lzma.open(path) as packed, tarfile.open(fileobj=packed) as archive:
        texts = {
            member.name: archive.extractfile(member).read().decode("latin-1")  # type: ignore[union-attr]
            for member in archive
            if member.isfile() and member.name.endswith(ending)
        }
    yield from (texts[name].replace("\r\n", "\n") for name in sorted(texts))


def _found(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(f"{path} is missing; --data must name the folder that holds the data sets")
    return path


def _unpacked(path: Path) -> bytes:
    with gzip.open(_found(path)) as packed:
        return packed.read()
