"""Which fidelity to read: what each costs in bytes and CPU, what it wins, what it loses.

Fewer scans are fewer bytes. All scans take two to three times the CPU of a plain JPEG, so that
progressive records lose where bytes are plenty. The rate of a reader is that of its scarcer side:
the bandwidth over the bytes of an image, or the cores over its CPU seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Any

from ettr.errors import EttrError
from ettr.records.shards import ImageRecords, transcoded

_FEWEST_HELD_OUT = 30
BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class ImageForm:
    """What an image costs in one form: a fidelity of the records, or another format.

    Attributes:
        fidelity: the level of the records; null for a form that they do not hold.
        image_bytes: the mean bytes of an image as it is read.
        decode_cpu_s: the mean CPU seconds to decode an image.
        is_lossless: all pixels come back.
    """

    name: str
    fidelity: int | None
    image_bytes: float
    decode_cpu_s: float
    is_lossless: bool


@dataclass(frozen=True, slots=True)
class Gain:
    """How fast a form is read, how much faster than the baseline, and which side decides."""

    form: ImageForm
    images_per_s: float
    gain: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class LossIncrease:
    """How much the held-out loss grows at a fidelity, with its interval."""

    fidelity: int
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The fidelity that a held-out probe allows, and what it measured at each."""

    fidelity: int
    increases: tuple[LossIncrease, ...]
    why: str


def measure_forms(
    records: ImageRecords,
    decode: Callable[[bytes], Any],
    *,
    n_images: int = 64,
    repeats: int = 3,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> tuple[ImageForm, ...]:
    """Bytes and CPU seconds of an image at each fidelity, and as an optimised baseline JPEG.

    Args:
        decode: what the training does with the bytes of a JPEG, in the calling thread.
        n_images: how many images are measured, from the first shards.
        repeats: how often each; its fastest counts.
        cpu_clock: seconds of CPU of the calling thread.

    Returns:
        The baseline, then each fidelity, coarsest first.

    Raises:
        EttrError: no image can be read, or `jpegtran` is not installed.
    """
    forms: list[tuple[str, int | None, list[bytes]]] = []
    for level in range(1, records.full + 1):
        jpegs: list[bytes] = []
        for index in range(len(records.shards)):
            jpegs += [one.jpeg for one in records.read_shard(index, level).records]
            if len(jpegs) >= n_images:
                break
        name = _name(records, level)
        forms.append((name, level, jpegs[:n_images]))
    if not all(jpegs for *_, jpegs in forms):
        raise EttrError(f"{records.folder}: no image could be read; `ettr records` says why")
    forms.insert(0, (BASELINE, None, [transcoded(jpeg) for jpeg in forms[-1][2]]))
    seconds = [[math.inf] * len(jpegs) for *_, jpegs in forms]
    for _ in range(repeats):
        # form after form of the same image: what else runs on the host slows all of them alike
        for image in range(min(len(jpegs) for *_, jpegs in forms)):
            for own, (*_, jpegs) in zip(seconds, forms, strict=True):
                begun = cpu_clock()
                decode(jpegs[image])
                own[image] = min(own[image], cpu_clock() - begun)
    return tuple(
        ImageForm(
            name,
            level,
            fmean(map(len, jpegs)),
            fmean(one for one in own if one < math.inf),
            is_lossless=level in {None, records.full},
        )
        for own, (name, level, jpegs) in zip(seconds, forms, strict=True)
    )


def _name(records: ImageRecords, level: int) -> str:
    if level == records.full:
        return "all scans"
    scans = records.groups[level - 1]
    return "scan 1" if scans == 1 else f"scans 1 to {scans}"


def gains(
    forms: Sequence[ImageForm],
    *,
    bandwidth_bytes_per_s: float,
    n_cores: float,
    other_cpu_s: float = 0.0,
) -> tuple[Gain, ...]:
    """The rate of each form and its gain over the first one, the baseline.

    Args:
        forms: the baseline first; forms of other formats may follow, measured elsewhere.
        bandwidth_bytes_per_s: what the storage gives this process.
        n_cores: cores that decode.
        other_cpu_s: CPU seconds an image that every form needs besides (augmentation, collation).

    Example:
        >>> from ettr.records import ImageForm, gains
        >>> plain = ImageForm("baseline", None, 100e3, 1.4e-3, True)
        >>> five = ImageForm("scans 1 to 5", 3, 44e3, 1.6e-3, False)
        >>> [round(one.gain, 2) for one in
        ...  gains([plain, five], bandwidth_bytes_per_s=1e8, n_cores=8)]
        [1.0, 2.27]
        >>> [round(one.gain, 2) for one in
        ...  gains([plain, five], bandwidth_bytes_per_s=8e8, n_cores=8)]
        [1.0, 0.87]
    """
    if not bandwidth_bytes_per_s > 0 or not n_cores > 0 or not other_cpu_s >= 0:
        raise EttrError("give a bandwidth and cores above 0, and a time of at least 0")
    rates: list[tuple[float, str]] = []
    for form in forms:
        by_bytes = bandwidth_bytes_per_s / form.image_bytes
        cpu_s = form.decode_cpu_s + other_cpu_s
        by_cores = n_cores / cpu_s if cpu_s > 0 else math.inf
        rates.append((by_bytes, "bandwidth") if by_bytes < by_cores else (by_cores, "cores"))
    return tuple(
        Gain(form, rate, rate / rates[0][0], bound_by)
        for form, (rate, bound_by) in zip(forms, rates, strict=True)
    )


def choose_fidelity(
    losses: Mapping[int, Sequence[float]], *, tolerance: float, confidence: float = 0.9
) -> Choice:
    """The coarsest fidelity whose held-out loss grows by no more than the tolerance.

    The same images are judged at each fidelity by a model that was trained at it (or by one model,
    for a first look), so that differences are paired. A level is allowed where the upper end of
    its interval is within the tolerance; intervals hold for all levels together. Without one that
    is allowed it is all scans.

    Args:
        losses: by fidelity, one loss (or error: 0, 1) an image, in the same order; the highest
            fidelity is what the others are compared with.
        tolerance: how much the mean loss may grow.
        confidence: of all intervals together.

    Raises:
        EttrError: under 30 images, unequal numbers, or a loss that is no number.

    Example:
        >>> from ettr.records import choose_fidelity
        >>> coarse, fine = [0.5, 0.1] * 50, [0.5, 0.1] * 50
        >>> choose_fidelity({1: [one + 0.3 for one in coarse], 2: coarse, 3: fine},
        ...                 tolerance=0.02).fidelity
        2
    """
    levels = sorted(losses)
    n_images = {len(losses[level]) for level in levels}
    if len(n_images) != 1 or min(n_images) < _FEWEST_HELD_OUT:
        raise EttrError(
            f"held-out losses of {sorted(n_images)} images: give the same images at each fidelity, "
            f"at least {_FEWEST_HELD_OUT}"
        )
    if not all(math.isfinite(loss) for level in levels for loss in losses[level]):
        raise EttrError("a held-out loss is not a finite number: check the model of that level")
    if not tolerance >= 0 or not 0 < confidence < 1:
        raise EttrError("give a tolerance of at least 0, and a confidence between 0 and 1")
    full = losses[levels[-1]]
    # one-sided for the question, two-sided as it is shown; Bonferroni over the levels
    width = NormalDist().inv_cdf(1 - (1 - confidence) / 2 / max(len(levels) - 1, 1))
    increases: list[LossIncrease] = []
    for level in levels[:-1]:
        differences = [one - whole for one, whole in zip(losses[level], full, strict=True)]
        mean = fmean(differences)
        error = stdev(differences) / math.sqrt(len(differences))
        increases.append(LossIncrease(level, mean, mean - width * error, mean + width * error))
    for increase in increases:
        if increase.high <= tolerance:
            why = (
                f"the loss grows by {increase.estimate:.4f}, at most {increase.high:.4f}; "
                f"{tolerance:g} is allowed"
            )
            return Choice(increase.fidelity, tuple(increases), why)
    why = f"no coarser fidelity is shown to stay within {tolerance:g}"
    return Choice(levels[-1], tuple(increases), why)
