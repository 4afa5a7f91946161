"""`ettr input trace`, `ettr input plan`, `ettr records`: what feeds a training run."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli.output import Printing, complain, say
from ettr.cli.quantities import bytes_per_s, if_given, n_bytes, seconds, whole_numbers
from ettr.cli.training import user_function
from ettr.errors import UsageError
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.records import Damage, Gain, ImageRecords, Sample
    from ettr.report.rows import JsonValue


def input_trace(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Function without arguments that returns a list (a source and functions), an "
            "SPDL PipelineBuilder or a torch DataLoader; FILE.py:FUNCTION works too.",
        ),
    ],
    stages: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write the stages to, as JSON lines."
        ),
    ],
    batches: Annotated[int, typer.Option(help="Number of items to draw from the pipeline.")] = 200,
    *,
    printing: Printing,
) -> None:
    """Time each stage of an input pipeline, for `ettr input plan`. It runs your code."""
    from dataclasses import asdict

    from ettr.adapters.input_trace import trace_input
    from ettr.progress.stages import write_stages

    try:
        made = _function(pipeline)()
        table, notes = trace_input(made, batches=batches, run=Path(pipeline).stem)
    except ModuleNotFoundError as error:
        raise UsageError(f"{pipeline}: needs {error.name}, which is not installed") from error
    write_stages(stages, table.stages, table.host)
    for note in notes:
        complain(note)
    if printing.summary(
        {"host": asdict(table.host), "stages": [asdict(one) for one in table.stages]}
    ):
        return
    say(f"{stages}: {len(table.stages)} stages. Next: ettr input plan {stages}")
    for one in table.stages:
        say(
            f"  {one.stage}: {one.wall_s * 1e3:.3g} ms per item, {one.cpu_s * 1e3:.3g} ms of CPU,"
            f" {one.gil_share:.0%} of it holding the GIL, {one.visits:g} calls per item delivered"
            + (", random" if one.random else "")
        )


def _function(name: str) -> Any:
    """The function of the user's module or file.

    Raises:
        UsageError: there is no such module, file or function.
    """
    module, _, function = name.rpartition(":")
    if module.endswith(".py") or not module:
        return user_function(name)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  where a module of the user's is looked for
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name and module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise UsageError(
            f"{name}: no module {module!r} here; give MODULE:FUNCTION or FILE.py:FUNCTION"
        ) from error
    if not callable(found):
        raise UsageError(f"{module}: has no function {function!r}")
    return found


# -- `ettr input plan`: the settings of an input pipeline, and the rate that they reach ------------


def input_plan(
    stages: Annotated[Path, typer.Argument(help="Stages, as `ettr input trace` writes them.")],
    rate: Annotated[
        float | None, typer.Option(help="Rate at which the training consumes items, per second.")
    ] = None,
    cores: Annotated[
        float | None, typer.Option(help="Cores for the pipeline; default those of the trace.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory for queues, workers and a cache, such as 64GB.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Bandwidth of the disk or network, such as 200MB/s.")
    ] = None,
    items: Annotated[
        float | None, typer.Option(help="Items in an epoch; a cache would hold all of them.")
    ] = None,
    *,
    printing: Printing,
) -> None:
    """Plan the concurrency, workers, queues and cache of an input pipeline, and predict its rate.

    Exit 1 if no plan reaches --rate.
    """
    from ettr.progress.stages import read_stages
    from ettr.projection.input_plan import InputLimits, plan_input
    from ettr.report.rows import plain_fields

    table = read_stages(stages)
    for line in table.bad_lines:
        complain(f"left out: {line}")
    limits = InputLimits(
        rate=rate,
        cores=cores,
        memory_bytes=if_given(n_bytes, "--memory", memory),
        bandwidth_bytes=if_given(bytes_per_s, "--bandwidth", bandwidth),
        dataset_items=items,
    )
    plan = plan_input(table, limits)
    if not printing.summary(plain_fields(plan)):
        for sentence in plan.says:
            say(sentence)
    if not plan.reaches:
        complain(f"no plan reaches {rate:g} items/s within these limits")
        raise typer.Exit(1)


# -- `ettr records`: pack images as progressive records, check them, say what each fidelity wins


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
