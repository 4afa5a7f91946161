"""The readers of the data sets, on small files of the same form and, where at hand, the real."""

import gzip
import io
import lzma
import struct
import tarfile

import numpy as np
import pytest

from ettr.errors import UsageError
from reproduction.scar import data
from reproduction.scar.__main__ import main
from shared_data import shared


def test_digits_are_read_from_idx(tmp_path):
    pixels = np.arange(3 * 4, dtype=np.uint8)
    head = struct.pack(">4I", 2051, 3, 2, 2)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + pixels.tobytes()))
    labels = struct.pack(">2I", 2049, 3) + bytes([7, 0, 9])
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    x, y = data.mnist(tmp_path)
    assert x.shape == (3, 4)
    assert x[2, 3] == pytest.approx(11 / 255)
    assert y.tolist() == [7, 0, 9]


def test_jokes_not_rated_are_nan_and_not_99(tmp_path):
    row = ",".join(["2", "-9.5", "99", *["1.0"] * 98])
    (tmp_path / "jester-data-1.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + row.encode()))
    table = data.jester(tmp_path)
    assert table.shape == (1, 100)
    assert table[0, 0] == -9.5
    assert np.isnan(table[0, 1])


@pytest.mark.parametrize(
    "text",
    [
        "userId,movieId,rating,timestamp\n5,10,4.0,1\n7,30,2.5,1\n",
        "5::10::4.0::1\n7::30::2.5::1\n",
        "5\t10\t4.0\t1\n7\t30\t2.5\t1\n",
    ],
)
def test_a_film_rating_file_of_any_edition_is_read(tmp_path, text):
    (tmp_path / "ratings").write_text(text)
    table = data.movielens(tmp_path / "ratings")
    assert table[0, 0] == 4
    assert table[1, 1] == 2.5
    assert np.isnan(table[0, 1])


@pytest.mark.slow
def test_the_films_of_the_user_are_factorised_and_resumed(tmp_path):
    rng = np.random.default_rng(0)
    likes = rng.normal(size=(80, 2)) @ rng.normal(size=(2, 40)) + rng.normal(size=(80, 40))
    lines = [f"{u}::{f}::{likes[u, f]:.2f}::0" for u, f in np.ndindex(80, 40) if rng.random() < 0.3]
    (tmp_path / "ratings.dat").write_text("\n".join(lines))
    call = ["--data", str(tmp_path), "--out", str(tmp_path), "--only", "-", "--trials", "2"]
    assert main([*call, "--movielens", str(tmp_path / "ratings.dat")]) == 0
    assert "mf-movielens" in (tmp_path / "table.md").read_text()
    assert "no interval" in (tmp_path / "table.md").read_text()


def test_a_film_rating_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "MATRIX_LIMIT", 3)
    (tmp_path / "ratings").write_text("5::10::4.0::1\n7::30::2.5::1\n")
    with pytest.raises(UsageError, match="give MovieLens 100K or 1M"):
        data.movielens(tmp_path / "ratings")


def test_counts_of_a_bag_of_words_become_tokens(tmp_path):
    (tmp_path / "reuters.ldac.gz").write_bytes(gzip.compress(b"2 0:2 5:1\n1 3:4\n"))
    words, lengths = data.reuters_395(tmp_path)
    assert words.tolist() == [0, 0, 5, 3, 3, 3, 3]
    assert lengths.tolist() == [3, 4]


def archive(path, members):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    path.write_bytes(lzma.compress(raw.getvalue()))


def test_posts_lose_their_header_and_rare_and_common_types(tmp_path):
    posts = {
        f"20news/{i:02d}": b"Subject: secret\n\nevery Some%d word" % (i % 2) for i in range(24)
    }
    posts |= {f"20news/b{i:02d}": b"Subject: x\r\n\r\nWord word it rare" for i in range(9)}
    archive(tmp_path / "20news-bydate.tar.xz", posts)
    words, lengths = data.newsgroups(tmp_path)
    assert words.size == 0  # "every", "some", "word" are in over half, "rare" in 9 only
    posts |= {f"20news/c{i:02d}": b"Subject: x\n\nkept kept" for i in range(12)}
    archive(tmp_path / "20news-bydate.tar.xz", posts)
    words, lengths = data.newsgroups(tmp_path)
    assert lengths.tolist() == [2] * 12


def test_stories_are_the_bodies_of_the_sgml(tmp_path):
    body = "<TITLE>never</TITLE><BODY>grain trade\n&#3;</BODY>"
    other = "<BODY>ships</BODY>"
    text = "".join([body] * 10 + [other] * 12).encode()
    archive(tmp_path / "reuters21578.tar.xz", {"r/reut2-000.sgm": text, "r/README.txt": b"<BODY>"})
    words, lengths = data.reuters_21578(tmp_path)
    assert lengths.tolist() == [2] * 10
    assert set(words) == {0, 1}


def test_a_missing_file_is_named(tmp_path, capsys):
    with pytest.raises(UsageError, match=r"jester-data-1\.csv\.gz is missing; --data must name"):
        data.jester(tmp_path)
    code = main(["--data", str(tmp_path), "--out", str(tmp_path / "o"), "--only", "mf-jester"])
    assert code == 2
    assert "is missing" in capsys.readouterr().err


@pytest.mark.slow
def test_the_small_sets_have_their_known_shapes():
    folder = shared("data/training")
    words, lengths = data.reuters_395(folder / "reuters-lda395")
    assert (lengths.size, words.size, int(words.max()) + 1) == (395, 84010, 4258)
    text, letters = data.shakespeare(folder / "tinyshakespeare")
    assert (text.size, letters) == (1_115_394, 65)
    ratings = data.jester(folder / "jester")
    assert ratings.shape == (24983, 100)
    assert int((~np.isnan(ratings)).sum()) == 1_810_455
    digits, labels = data.mnist(folder / "mnist")
    assert digits.shape == (60_000, 784)
    published = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(labels).tolist() == published


@pytest.mark.slow
def test_the_command_runs_and_goes_on(tmp_path, capsys):
    name = "lda-reuters21578"
    few = ["--every", "500"]  # 39 of its stories
    call = ["--data", str(shared("data/training")), "--out", str(tmp_path), "--only", name, *few]
    assert main([*call, "--trials", "1"]) == 0
    first = (tmp_path / f"{name}.jsonl").read_text()
    assert main([*call, "--trials", "2"]) == 0
    assert (tmp_path / f"{name}.jsonl").read_text().startswith(first)
    assert name in capsys.readouterr().out
