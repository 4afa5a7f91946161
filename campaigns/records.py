"""Progressive records of real pictures: the same pixels, their bytes, and what a reader gains.

The pictures are those that come in the wheels of scikit-image, scikit-learn and Matplotlib, as many
as are installed; what is no JPEG there is made one at quality 90. *Bytes* are compared with the
optimised baseline JPEG of the same pixels. The reader is throttled to a rate for one core by
sleeping as long as its bytes take, and decodes after it; the longer of both is its time, as of one
that reads ahead. Rates are those of one core at a tenth of the bandwidth of a host of ten cores.

The classifier names the picture that a patch of 64 × 64 was cut from; a layer is trained and judged
at each fidelity, and the tuner sees a held-out half only.
"""

from __future__ import annotations

import importlib.util
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from campaigns import Table
from campaigns.small_classifiers import fitted, probabilities
from ettr.records import (
    ImageRecords,
    Sample,
    choose_fidelity,
    gains,
    measure_forms,
    open_records,
    write_records,
)
from ettr.records.shards import transcoded

TITLE = "Progressive records"
SIZE = 40
SEED = 77
GROUPS = (1, 2, 5, 10)
RATES = (10e6, 20e6, 40e6, 80e6)
"""Of one core in ten."""
TOLERANCE = 0.03
_FEWEST_BYTES = 20_000

Decode = Callable[[bytes], object]


def pictures() -> dict[str, bytes]:
    """JPEGs of the pictures in installed wheels, by name."""
    found: dict[str, bytes] = {}
    for package, folder in (
        ("skimage", "data"),
        ("sklearn", "datasets/images"),
        ("matplotlib", "mpl-data/sample_data"),
    ):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for path in sorted((Path(spec.origin).parent / folder).glob("*")):
            if path.suffix == ".jpg":
                found[path.stem] = path.read_bytes()
            elif path.suffix == ".png":
                image = Image.open(path)
                coded = io.BytesIO()
                image.convert("L" if image.mode == "L" else "RGB").save(coded, "JPEG", quality=90)
                found[path.stem] = coded.getvalue()
    return found


def decoders() -> dict[str, Decode]:
    """Decoders of different makers, as far as they are installed."""
    import simplejpeg

    found: dict[str, Decode] = {
        "Pillow": lambda jpeg: np.asarray(Image.open(io.BytesIO(jpeg))),
        "simplejpeg": simplejpeg.decode_jpeg,
    }
    if importlib.util.find_spec("imagecodecs"):
        import imagecodecs

        found["imagecodecs"] = imagecodecs.jpeg_decode
    return found


def _pixels(jpeg: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(jpeg)))


class _Throttled:
    """Reads the head of a file as slowly as a rate allows, and counts."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self.n_reads = 0

    def __call__(self, path: Path, n_bytes: int) -> bytes:
        self.n_reads += 1
        with path.open("rb") as file:
            head = file.read(n_bytes)
        time.sleep(len(head) / self._bytes_per_s)
        return head


def _measured_gain(folder: Path, rate: float, fidelity: int, plain: list[bytes]) -> float:
    """Images a second at a fidelity over those of plain JPEGs, read and decoded by one core."""
    import simplejpeg

    def seconds(read_s: float, jpegs: list[bytes]) -> float:
        begun = time.thread_time()
        for jpeg in jpegs:
            simplejpeg.decode_jpeg(jpeg)
        # a reader that reads ahead: the slower of both decides
        return max(read_s, time.thread_time() - begun)

    reader = _Throttled(rate)
    opened = open_records(folder, reader)
    begun = time.monotonic()
    jpegs = [
        one.jpeg
        for index in range(len(opened.shards))
        for one in opened.read_shard(index, fidelity).records
    ]
    own = seconds(time.monotonic() - begun, jpegs)
    if reader.n_reads != len(opened.shards):
        raise AssertionError(f"{reader.n_reads} reads of {len(opened.shards)} shards")
    begun = time.monotonic()
    time.sleep(sum(map(len, plain)) / rate)
    return seconds(time.monotonic() - begun, plain) / own


def _tuned(photos: dict[str, bytes], rng: np.random.Generator, size: int) -> tuple[str, str, str]:
    """The fidelity that the tuner takes, its accuracy, and that of all scans, on fresh patches."""
    names = [name for name, jpeg in photos.items() if len(jpeg) >= _FEWEST_BYTES][:15]
    patches: dict[int, list[NDArray[np.float64]]] = {level: [] for level in range(1, 5)}
    labels: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        samples = []
        for label, name in enumerate(names):
            image = Image.open(io.BytesIO(photos[name])).convert("RGB")
            for number in range(3 * size):
                left, top = (int(rng.integers(0, max(side - 64, 1))) for side in image.size)
                coded = io.BytesIO()
                image.crop((left, top, left + 64, top + 64)).save(coded, "JPEG", quality=90)
                samples.append(Sample(f"{label}-{number}", coded.getvalue()))
                labels.append(label)
        write_records(samples, f"{folder}/packed", groups=GROUPS, jobs=2)
        opened = open_records(f"{folder}/packed")
        for level in patches:
            patches[level] = [_pixels(one.jpeg).astype(np.float64) for one in opened.stream(level)]
    own = np.asarray(labels)
    part = np.arange(len(own)) % 3
    wrong: dict[int, NDArray[np.float64]] = {}
    for level, images in patches.items():
        features = _coarse(np.stack(images))
        features = (features - features[part == 0].mean(0)) / (features[part == 0].std(0) + 1e-6)
        layer = fitted(features[part == 0], own[part == 0], len(names), ridge=1e-2)
        wrong[level] = (probabilities(layer, features).argmax(1) != own).astype(np.float64)
    choice = choose_fidelity(
        {level: found[part == 1].tolist() for level, found in wrong.items()}, tolerance=TOLERANCE
    )
    fresh = {level: 1 - float(found[part == 2].mean()) for level, found in wrong.items()}
    return str(choice.fidelity), f"{fresh[choice.fidelity]:.3f}", f"{fresh[4]:.3f}"


def _coarse(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of 8 × 8 cells, histograms and the energy of differences, of (n, 64, 64, 3) pixels."""
    cells = images.reshape(len(images), 8, 8, 8, 8, 3).mean((2, 4)).reshape(len(images), -1) / 255
    edges = (
        np.abs(np.diff(images, axis=1)).mean((1, 2)),
        np.abs(np.diff(images, axis=2)).mean((1, 2)),
    )
    levels = [((images >= low) & (images < low + 32)).mean((1, 2)) for low in range(0, 256, 32)]
    return np.concatenate(
        [cells, *(np.log1p(edge) for edge in edges), *levels, np.ones((len(images), 1))], axis=1
    )


def run(size: int) -> Table:
    """Pack what there is, read it at every fidelity, and train on `size` patches a picture."""
    photos = pictures()
    seen_gains: dict[float, float] = {}
    rows: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "packed"
        write_records([Sample(*one) for one in photos.items()], packed, groups=GROUPS, jobs=2)
        opened = open_records(packed)
        plain = [transcoded(jpeg) for jpeg in photos.values()]
        rows += _identity(opened, photos, plain)
        forms = measure_forms(opened, decoders()["simplejpeg"])
        for form in forms:
            rows.append((f"KB an image, {form.name}", f"{form.image_bytes / 1e3:.1f}"))
            rows.append(
                (
                    f"decoding over baseline, {form.name}",
                    f"{form.decode_cpu_s / forms[0].decode_cpu_s:.2f}",
                )
            )
        for rate in RATES:
            said = gains(forms, bandwidth_bytes_per_s=rate * 10, n_cores=10)[3].gain
            seen = seen_gains[rate] = _measured_gain(packed, rate, 3, plain)
            rows.append(
                (
                    f"gain of scans 1 to 5 at {rate / 1e5:.0f} MB/s: predicted, measured",
                    f"{said:.2f}, {seen:.2f}",
                )
            )
    level, accuracy, whole = _tuned(photos, np.random.default_rng(SEED), size)
    rows.append((f"fidelity taken at a tolerance of {TOLERANCE:g}", level))
    rows.append(("accuracy on fresh patches: taken, all scans", f"{accuracy}, {whole}"))
    return Table(
        ("what", "value"),
        tuple(rows),
        str(SEED),
        "the same pixels in each picture; at most 1.02 of the baseline's bytes on photos, 1.04 on "
        "anything; every prefix opens in three decoders; twice as fast at 100 MB/s, no gain at "
        "800 MB/s; accuracy within the tolerance",
        f"Scans 1 to 5 are {seen_gains[RATES[0]]:.2f} times as fast at 100 MB/s and "
        f"{seen_gains[RATES[-1]]:.2f} times at 800 MB/s; fidelity {level} loses "
        f"{float(whole) - float(accuracy):.3f} of accuracy on fresh patches.",
    )


def _identity(
    opened: ImageRecords, photos: dict[str, bytes], plain: list[bytes]
) -> list[tuple[str, str]]:
    whole = list(opened.stream())
    same = sum(np.array_equal(_pixels(one.jpeg), _pixels(photos[one.name])) for one in whole)
    ratios = {one.name: len(one.jpeg) / len(base) for one, base in zip(whole, plain, strict=True)}
    large = [ratio for name, ratio in ratios.items() if len(photos[name]) >= _FEWEST_BYTES]
    opens = tried = 0
    for level in range(1, opened.full + 1):
        for one in opened.stream(level):
            for decode in decoders().values():
                tried += 1
                try:
                    decode(one.jpeg)
                    opens += 1
                except Exception:  # noqa: S110 - counted: any failure of a decoder
                    pass
    return [
        ("pictures, the same pixels", f"{len(photos)}, {same}"),
        (f"bytes over baseline, {len(large)} above 20 KB: largest", f"{max(large):.3f}"),
        ("bytes over baseline, all: largest", f"{max(ratios.values()):.3f}"),
        (f"prefixes that open in {', '.join(decoders())}", f"{opens} of {tried}"),
    ]
