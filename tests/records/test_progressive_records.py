"""Progressive records: all scans are the same pixels, any prefix is a picture, damage is named."""

import io
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from cli.program import ettr
from ettr.errors import EttrError
from ettr.records import (
    Damage,
    ImageForm,
    ImageRecords,
    Sample,
    choose_fidelity,
    gains,
    measure_forms,
    open_records,
    progressive,
    samples_of_folder,
    samples_of_tars,
    scan_ends,
    write_records,
)
from ettr.records.shards import JpegError, transcoded

pytestmark = pytest.mark.images
PHOTO = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"


def coded(pixels: np.ndarray, quality: int = 90) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def pixels(jpeg: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(jpeg)))


@pytest.fixture(scope="module")
def originals() -> dict[str, bytes]:
    """A photo, a grey one, pieces of it, and noise: what real folders mix."""
    photo = pixels(PHOTO.read_bytes())
    rng = np.random.default_rng(1)
    found = {
        "photo": PHOTO.read_bytes(),
        "grey": coded(photo[..., 0]),
        "small": coded(photo[100:133, 50:81]),
        "noise": coded(rng.integers(0, 256, (90, 70, 3), dtype=np.uint8)),
        "flat": coded(np.full((16, 16, 3), 127, np.uint8)),
    }
    return found | {f"cut{n}": coded(photo[n : n + 128, n : n + 128]) for n in range(0, 300, 60)}


@pytest.fixture(scope="module")
def packed(originals: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> ImageRecords:
    folder = tmp_path_factory.mktemp("records") / "packed"
    samples = [
        Sample(name, jpeg, {"cls": b"%d" % n}) for n, (name, jpeg) in enumerate(originals.items())
    ]
    written = write_records(samples, folder, samples_a_shard=4)
    assert (written.n_samples, written.n_shards, written.damage) == (len(originals), 3, ())
    return open_records(folder)


def test_all_scans_are_the_pixels_of_the_original(
    packed: ImageRecords, originals: dict[str, bytes]
) -> None:
    found = {one.name: one for one in packed.stream()}
    assert list(found) == list(originals)
    for number, (name, jpeg) in enumerate(originals.items()):
        np.testing.assert_array_equal(pixels(found[name].jpeg), pixels(jpeg))
        assert found[name].sidecars == {"cls": b"%d" % number}
    photo = found["photo"].jpeg
    assert len(photo) <= 1.02 * len(transcoded(originals["photo"]))
    assert len(scan_ends(photo)) == 10


def test_every_fidelity_opens_in_three_decoders_and_comes_nearer(
    packed: ImageRecords, originals: dict[str, bytes]
) -> None:
    import simplejpeg

    errors: dict[str, list[float]] = {}
    for level in range(1, packed.full + 1):
        for one in packed.stream(level):
            seen = pixels(one.jpeg)
            simplejpeg.decode_jpeg(one.jpeg)
            said = subprocess.run(
                ["djpeg", "-ppm"], input=one.jpeg, capture_output=True, check=False
            )
            assert said.returncode == 0, said.stderr
            apart = seen.astype(float) - pixels(originals[one.name])
            errors.setdefault(one.name, []).append(float((apart**2).mean()))
    for name, found in errors.items():
        assert found[-1] == 0
        assert found == sorted(found, reverse=True), name


def test_one_read_a_shard_and_fewer_bytes_for_less(packed: ImageRecords) -> None:
    asked: list[tuple[str, int]] = []

    def read(path: Path, n_bytes: int) -> bytes:
        asked.append((path.name, n_bytes))
        return path.read_bytes()[:n_bytes]

    counted = open_records(packed.folder, read)
    by_level = []
    for level in range(1, 5):
        asked.clear()
        assert len(list(counted.stream(level))) == packed.n_samples
        assert len(asked) == len(packed.shards)
        by_level.append(sum(n_bytes for _, n_bytes in asked))
        assert by_level[-1] == packed.head_bytes(level)
    assert by_level == sorted(by_level)
    assert by_level[0] < 0.35 * by_level[3]


def test_fidelity_may_change_while_a_worker_reads_its_share(packed: ImageRecords) -> None:
    levels = iter([1, 4])
    found = list(packed.stream(lambda: next(levels), shards=[2, 0]))
    assert [one.name for one in found][-4:] == ["photo", "grey", "small", "noise"]
    assert found[-4].n_scans == 10
    assert found[0].n_scans == 1


def test_any_tar_tool_opens_a_shard(packed: ImageRecords) -> None:
    listed = subprocess.run(
        ["tar", "tf", packed.folder / packed.shards[0].file],
        capture_output=True,
        text=True,
        check=True,
    )
    groups = [f"scans-0{group}.bin" for group in range(1, 5)]
    assert listed.stdout.split() == ["index.json", "sidecars.bin", *groups]


@pytest.mark.parametrize("level", [1, 4])
def test_a_cut_or_damaged_shard_gives_the_rest(
    packed: ImageRecords, tmp_path: Path, level: int
) -> None:
    folder = tmp_path / "packed"
    shutil.copytree(packed.folder, folder)
    whole = (folder / "shard-00000.tar").read_bytes()
    end = packed.shards[0].head_bytes[level - 1]
    (folder / "shard-00000.tar").write_bytes(whole[: end - 700])
    (folder / "shard-00001.tar").write_bytes(bytes(1024))
    said: list[Damage] = []
    found = list(open_records(folder).stream(level, on_damage=said.append))
    assert {one.name for one in found} >= {"photo", "cut180", "cut240"}
    assert any(one.file == "shard-00000.tar" and one.index == 3 for one in said)
    assert any("none of its images" in str(one) and "shard-00001" in str(one) for one in said)
    assert len(found) + sum(one.index is not None for one in said) + 4 == packed.n_samples


def test_a_flipped_bit_anywhere_never_gives_other_pixels(
    packed: ImageRecords, tmp_path: Path
) -> None:
    folder = tmp_path / "packed"
    shutil.copytree(packed.folder, folder)
    path = folder / "shard-00000.tar"
    whole = path.read_bytes()
    right = {one.name: (one.jpeg, one.sidecars) for one in packed.stream()}
    rng = np.random.default_rng(3)
    for place in rng.integers(0, len(whole), 60):
        broken = bytearray(whole)
        broken[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        for one in open_records(folder).stream(on_damage=lambda _: None):
            assert (one.jpeg, one.sidecars) == right[one.name]


@pytest.mark.parametrize(
    "manifest",
    [
        "{}",
        "[",
        '{"format": "ettr records 9", "groups": [1], "shards": []}',
        '{"format": "ettr records 1", "groups": [1], "shards": [{"file": "../../etc/passwd", '
        '"samples": 1, "head_bytes": [9], "index_crc32": 0}]}',
        '{"format": "ettr records 1", "groups": [1, 2], "shards": [{"file": "a", "samples": 1, '
        '"head_bytes": [-1, 2], "index_crc32": 0}]}',
    ],
)
def test_a_hostile_manifest_is_refused(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "records.json").write_text(manifest)
    with pytest.raises(EttrError, match=r"records\.json"):
        open_records(tmp_path)


def test_what_is_no_jpeg_is_named_and_the_rest_is_packed(
    originals: dict[str, bytes], tmp_path: Path
) -> None:
    source = tmp_path / "photos" / "dog"
    source.mkdir(parents=True)
    photo = originals["photo"]
    for name, data in {"a": photo, "b": b"GIF89a", "c": photo[:2000], "d": b"", "e": photo}.items():
        (source / f"{name}.jpg").write_bytes(data)
    (source / "f.jpg").symlink_to("/etc/passwd")
    done = ettr("records", tmp_path / "photos", "-o", tmp_path / "out", "--json")
    assert done.code == 1
    document = done.json
    assert (document["images"], document["whole"]) == (2, 2)
    assert [one["file"].rpartition("/")[2] for one in document["damage"]] == [
        "b",
        "c",
        "d",
        "f.jpg",
    ]
    found = list(open_records(tmp_path / "out").stream())
    assert [(one.name, one.sidecars) for one in found] == [
        ("dog/a", {"folder": b"dog"}),
        ("dog/e", {"folder": b"dog"}),
    ]


def test_webdataset_shards_are_an_input_and_a_cut_one_gives_what_is_before_the_cut(
    originals: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "000.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(4):
            for ending, data in (("jpg", originals["cut0"]), ("cls", b"7"), ("json", b"{}")):
                entry = tarfile.TarInfo(f"train/{number:04}.{ending}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    whole = list(samples_of_tars([path]))
    assert [(one.name, dict(one.sidecars)) for one in whole if isinstance(one, Sample)] == [
        (f"train/{number:04}", {"cls": b"7", "json": b"{}"}) for number in range(4)
    ]
    path.write_bytes(path.read_bytes()[:-12_000])
    first, *_, last = samples_of_tars([path])
    assert isinstance(first, Sample)
    assert isinstance(last, Damage)
    assert "the rest of the tar cannot be read" in str(last)


def test_a_write_that_did_not_end_is_no_data_set(
    originals: dict[str, bytes], tmp_path: Path
) -> None:
    def samples():
        yield Sample("one", originals["photo"])
        yield Sample("two", originals["grey"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_records(samples(), tmp_path / "packed", samples_a_shard=1)
    with pytest.raises(EttrError, match="written to its end"):
        open_records(tmp_path / "packed")
    with pytest.raises(EttrError, match="not an empty folder"):
        write_records(samples_of_folder(tmp_path), tmp_path)


def test_scans_end_where_bytes_say_and_hostile_bytes_end_in_a_sentence(
    originals: dict[str, bytes],
) -> None:
    jpeg = progressive(originals["photo"])
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(jpeg[: rng.integers(1, 4000)])
        for _ in range(3):
            broken[rng.integers(len(broken))] = rng.integers(256)
        try:
            ends = scan_ends(bytes(broken))
        except JpegError as error:
            assert "JPEG" in str(error)  # noqa: PT017 - most, not all, of these are refused
        else:
            assert ends[-1] <= len(broken)
    with pytest.raises(JpegError, match="more than 100 scans"):
        scan_ends(b"\xff\xd8" + b"\xff\xda\x00\x02\x00" * 200 + b"\xff\xd9")


def test_gains_say_where_to_keep_plain_jpegs() -> None:
    forms = (
        ImageForm("baseline", None, 100e3, 1.36e-3, is_lossless=True),
        ImageForm("scans 1 to 5", 3, 44e3, 1.57e-3, is_lossless=False),
        ImageForm("all scans", 4, 98e3, 2.9e-3, is_lossless=True),
    )
    slow = gains(forms, bandwidth_bytes_per_s=100e6, n_cores=8)
    assert [one.bound_by for one in slow] == ["bandwidth"] * 3
    assert slow[1].gain == pytest.approx(100 / 44)
    quick = gains(forms, bandwidth_bytes_per_s=800e6, n_cores=8)
    # 8 cores decode 8 / 1.36 ms = 5,882 plain JPEGs a second and 5,096 of five scans
    assert quick[0].images_per_s == pytest.approx(5882, abs=1)
    assert quick[1].gain == pytest.approx(1.36 / 1.57)
    assert max(one.gain for one in quick[1:]) < 1


def test_the_command_says_where_it_is_worth_it(packed: ImageRecords) -> None:
    slow = ettr("records", packed.folder, "--bandwidth", "1MB/s", "--cores", "8")
    assert slow.code == 0
    assert "times as fast as plain JPEGs" in slow.out.splitlines()[0]
    quick = ettr(
        "records", packed.folder, "--bandwidth", "900GB/s", "--cores", "8", "--other", "1s"
    )
    assert "keep plain JPEGs" in quick.out.splitlines()[0]


def test_forms_are_measured_with_the_clock_that_is_given(packed: ImageRecords) -> None:
    clock = time.process_time
    sizes: list[int] = []
    forms = measure_forms(packed, lambda jpeg: sizes.append(len(jpeg)), repeats=1, cpu_clock=clock)
    assert [one.fidelity for one in forms] == [None, 1, 2, 3, 4]
    assert forms[1].image_bytes < forms[2].image_bytes < forms[4].image_bytes
    assert len(sizes) == 5 * packed.n_samples


def test_the_tuner_takes_the_coarsest_fidelity_within_its_tolerance() -> None:
    rng = np.random.default_rng(5)
    wrongly = 0
    for _ in range(200):
        base = rng.exponential(0.4, 400)
        losses = {
            1: base + rng.normal(0.2, 0.3, 400),
            2: base + rng.normal(0.03, 0.3, 400),  # just above the tolerance
            3: base + rng.normal(0.0, 0.1, 400),
            4: base,
        }
        wrongly += (
            choose_fidelity({k: v.tolist() for k, v in losses.items()}, tolerance=0.02).fidelity < 3
        )
    assert wrongly <= 10  # 5 % one-sided, of which the levels share
    with pytest.raises(EttrError, match="not a finite number"):
        choose_fidelity({1: [np.nan] * 40, 2: [0.0] * 40}, tolerance=0.1)
    with pytest.raises(EttrError, match="at least 30"):
        choose_fidelity({1: [0.0] * 9, 2: [0.0] * 9}, tolerance=0.1)
