"""`ettr records`: pack images as progressive records, check them, say what each fidelity wins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli.output import say
from ettr.cli.printing import Printing
from ettr.cli.quantities import bytes_per_s, seconds, whole_numbers
from ettr.errors import UsageError
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.records import Damage, Gain, ImageRecords, Sample
    from ettr.report.rows import JsonValue

_SHOWN_DAMAGE = 10
_WORTH = 1.1
"""Below this gain a neighbour on the host changes the rate by more."""


def records(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SOURCE...", help="Packed records; with -o, JPEGs or tars."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Pack into this new folder."),
    ] = None,
    groups: Annotated[
        str, typer.Option(metavar="SCANS", help="With -o: last scan of each fidelity.")
    ] = "1,2,5,10",
    shard: Annotated[
        int, typer.Option(metavar="IMAGES", min=1, help="With -o: images per shard.")
    ] = 256,
    bandwidth: Annotated[
        str, typer.Option(metavar="RATE", help="Storage bandwidth of one host.")
    ] = "100MB/s",
    cores: Annotated[
        float | None,
        typer.Option(min=0.01, help="Cores that decode; default those of this process."),
    ] = None,
    other: Annotated[
        str, typer.Option(metavar="TIME", help="CPU time per image, without decoding.")
    ] = "0s",
    *,
    printing: Printing,
) -> None:
    """Pack JPEGs so that lower fidelity reads fewer bytes, and report where that pays.

    Every byte of packed records is checked; exit 1 if an image is damaged or was left out.
    """
    from ettr.records import open_records

    rate = bytes_per_s("--bandwidth", bandwidth)
    other_s = seconds("--other", other)
    n_cores = cores if cores is not None else float(len(os.sched_getaffinity(0)))
    damage: list[Damage] = []
    packed: dict[str, Any] | None = None
    if output is not None:
        packed = _packed(sources, output, groups, shard, int(n_cores) or 1, damage)
        opened = open_records(output)
    elif len(sources) == 1:
        opened = open_records(sources[0])
    else:
        raise UsageError(f"{len(sources)} folders: give one folder of records, or -o FOLDER")
    n_whole = sum(1 for _ in opened.stream(on_damage=damage.append))
    rows, why_none = _gains(opened, rate, n_cores, other_s) if n_whole else ((), "nothing to read")
    document: dict[str, JsonValue] = {
        "format": "ettr records",
        "version": 1,
        "images": opened.n_samples,
        "whole": n_whole,
        "shards": len(opened.shards),
        "bandwidth_bytes_per_s": rate,
        "cores": n_cores,
        "packed": packed,
        "forms": [
            {
                **asdict(one.form),
                "images_per_s": one.images_per_s,
                "gain": one.gain,
                "bound_by": one.bound_by,
            }
            for one in rows
        ],
        "damage": [asdict(one) for one in damage],
    }
    if not printing.summary(document):
        for line in chain(
            _text(opened, packed, rows, why_none, bandwidth, n_cores), _damage_lines(damage)
        ):
            say(line)
    if damage:
        raise typer.Exit(1)


def _packed(
    sources: list[Path], output: Path, groups: str, shard: int, jobs: int, damage: list[Damage]
) -> dict[str, Any]:
    from ettr.records import samples_of_folder, samples_of_tars, write_records

    def samples() -> Iterator[Sample | Damage]:
        for source in sources:
            if source.is_dir():
                yield from samples_of_folder(source)
            else:
                yield from samples_of_tars([source])

    for source in sources:
        if not source.exists():
            raise UsageError(f"{source} does not exist: give a folder of JPEGs, or tars")
    levels = whole_numbers("--groups", groups)
    written = write_records(samples(), output, groups=levels, samples_a_shard=shard, jobs=jobs)
    damage += written.damage
    return {"given_bytes": written.given_bytes, "written_bytes": written.written_bytes}


def _decoder() -> tuple[Callable[[bytes], Any] | None, str]:
    try:
        import simplejpeg
    except ImportError:
        return None, "decoding was not measured: install the extra `images` (simplejpeg)"
    return simplejpeg.decode_jpeg, ""


def _gains(
    opened: ImageRecords, rate: float, n_cores: float, other_s: float
) -> tuple[tuple[Gain, ...], str]:
    from ettr.records import gains, measure_forms

    decode, why_none = _decoder()
    if decode is None:
        return (), why_none
    forms = measure_forms(opened, decode)
    return gains(forms, bandwidth_bytes_per_s=rate, n_cores=n_cores, other_cpu_s=other_s), ""


def _text(
    opened: ImageRecords,
    packed: dict[str, Any] | None,
    rows: tuple[Gain, ...],
    why_none: str,
    bandwidth: str,
    n_cores: float,
) -> Iterator[str]:
    if rows:
        yield _verdict(rows, bandwidth, n_cores)
    else:
        yield f"{counted(opened.n_samples, 'image')}: {why_none}."
    if packed is not None:
        share = packed["written_bytes"] / max(packed["given_bytes"], 1)
        yield f"Packed {counted(opened.n_samples, 'image')} to {share:.2f} times the bytes given."
    if rows:
        yield ""
        yield f"{'':16}{'KB/image':>12}{'decode ms':>11}{'images/s':>10}{'gain':>7}  bound by"
    for one in rows:
        form = one.form
        yield (
            f"{form.name:16}{form.image_bytes / 1e3:12.1f}{form.decode_cpu_s * 1e3:11.2f}"
            f"{one.images_per_s:10.0f}{one.gain:7.2f}  {one.bound_by}"
        )


def _verdict(rows: tuple[Gain, ...], bandwidth: str, n_cores: float) -> str:
    where = f"At {bandwidth} and {n_cores:g} cores"
    worth = [one for one in rows[1:] if one.gain >= _WORTH]
    if not worth:
        return f"{where} keep plain JPEGs: no fidelity reads {_WORTH:g} times as fast."
    finest = worth[-1]
    name = finest.form.name
    what = "all of them lossless" if finest.form.is_lossless else "if training allows it"
    return f"{where} {name} read {finest.gain:.1f} times as fast as plain JPEGs, {what}."


def _damage_lines(damage: list[Damage]) -> Iterator[str]:
    if damage:
        yield ""
        yield f"Left out: {counted(len(damage), 'image or file', 'images or files')}."
    for one in damage[:_SHOWN_DAMAGE]:
        yield f"  {one}"
    if len(damage) > _SHOWN_DAMAGE:
        yield f"  and {len(damage) - _SHOWN_DAMAGE} more; --json has all."
