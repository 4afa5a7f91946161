"""Commands of the training side: verify, elastic, chaos, measure-recovery, records, input."""

from __future__ import annotations

import importlib.util
import json as json_
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ettr.cli.groups import OptionGroup
from ettr.cli.output import Printing, complain, say
from ettr.cli.quantities import bytes_per_s, if_given, n_bytes, seconds, whole_numbers
from ettr.errors import UsageError
from ettr.files import write_text
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.chaos import ChaosReport
    from ettr.checkpoint import BadBlock, BlockAge
    from ettr.checkpoint.recovery_cost import Build
    from ettr.elastic.agent import AgentReport
    from ettr.elastic.nodes import SupervisorReport
    from ettr.records import Damage, Gain, ImageRecords, Sample
    from ettr.report.rows import JsonValue


_RUNS_A_PROGRAM = {"context_settings": {"allow_extra_args": True, "allow_interspersed_args": False}}
SETTINGS = {"elastic": _RUNS_A_PROGRAM, "chaos": _RUNS_A_PROGRAM}


def elastic(
    context: typer.Context,
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, max=1024, help="Ranks to run.")],
    spares: Annotated[
        int,
        typer.Option(min=0, max=1024, help="Warm spare processes, ready to take a slot."),
    ] = 1,
    heartbeat: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Replace a rank that has been silent for this long."),
    ] = 30.0,
    leave: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Replace a rank that has not left the old generation this long after the "
            "next one began; default 15 s more than the script's Timeouts.collective_s.",
        ),
    ] = None,
    max_failures: Annotated[
        int, typer.Option(min=0, help="Give up after this many lost processes.")
    ] = 64,
    nnodes: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes that start the training; any more that join are spares."),
    ] = None,
    rdzv: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address at which the nodes meet; the node that has it supervises. Under "
            "srun, default the first node of the step.",
        ),
    ] = None,
    node_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this node; default its host name.")
    ] = None,
    rack: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Rack of this node; copies go to another rack."),
    ] = None,
    node_timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Give up a node that has been silent for this long."),
    ] = 10.0,
    node_wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for a node to join.")
    ] = 600.0,
    stop_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Moment by which to ask the run to stop, as SIGTERM does: it saves at the "
            "end of the step.",
        ),
    ] = None,
    *,
    printing: Printing,
) -> None:
    """Run CMD as a number of ranks on this node; one that dies is replaced, the rest live on.

    Usage: ettr elastic -n 4 -- python train.py. On several nodes, the same command on each:
    ettr elastic --nnodes 2 --rdzv node001:29400 -n 8 -- python train.py; or srun ettr elastic. The
    script calls ElasticGroup.run (see the tutorial "Survive a killed rank"). Exit 1 if the run
    could not be brought to its end, 75 if it was asked to end (SIGTERM, --stop-after) and all ranks
    have saved the same step: start it again.
    """
    from ettr.checkpoint.notice import EXIT_STATUS, StopNotice
    from ettr.elastic.agent import node_setting, run_node
    from ettr.elastic.handshake import Meeting
    from ettr.elastic.nodes import SupervisorOptions, SupervisorReport
    from ettr.elastic.supervisor import supervise

    options = SupervisorOptions(
        spares=spares,
        heartbeat_timeout_s=heartbeat,
        leave_s=leave,
        max_failures=max_failures,
        node_timeout_s=node_timeout,
        node_wait_s=node_wait,
    )
    setting = node_setting(
        os.environ,
        meeting=None if rdzv is None else Meeting.parse(rdzv),
        n_nodes=nnodes,
        name=node_name,
        rack=rack,
    )
    with StopNotice(deadline_s=stop_after, margin_s=0.0) as notice:
        report = (
            supervise(context.args, ranks, options=options, on_event=complain, notice=notice)
            if setting is None
            else run_node(
                context.args, ranks, setting, options=options, on_event=complain, notice=notice
            )
        )
    if isinstance(report, SupervisorReport):
        _say_run(report, printing)
    else:
        _say_node(report, printing)
    if not report.finished:
        raise typer.Exit(EXIT_STATUS if report.stopped else 1)


def _say_run(report: SupervisorReport, printing: Printing) -> None:
    from ettr.report.rows import plain

    document = {
        "finished": report.finished,
        "stopped": report.stopped,
        "reason": report.reason,
        "ranks": report.world,
        "generations": report.generations,
        "wall_s": round(report.wall_s, 3),
        "losses": [asdict(loss) for loss in report.losses],
    }
    if printing.summary(plain(document)):
        return
    for loss in report.losses:
        say(f"lost slot {loss.slot} (pid {loss.pid}, {loss.cause}) at step {loss.step}")
    say(f"{_end_of(report)}; {len(report.losses)} lost, {report.wall_s:.1f} s")


def _say_node(report: AgentReport, printing: Printing) -> None:
    from ettr.report.rows import plain

    if printing.summary(plain({"finished": report.finished, **asdict(report)})):
        return
    cut_off = f"; cut off {report.n_fenced} times" if report.n_fenced else ""
    say(f"node {report.node}: {_end_of(report)}{cut_off}")


def _end_of(report: SupervisorReport | AgentReport) -> str:
    if report.finished:
        return "trained to the end"
    return str(report.reason) if report.stopped else f"gave up: {report.reason}"


# -- `ettr chaos`: run any command under faults on a seeded schedule -------------------------------


_LONGEST_S = 30 * SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class FaultSchedule(OptionGroup):
    """Which faults, and when."""

    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault", metavar="KIND", help="kill, stop, flip, truncate, fill, limit; repeatable."
        ),
    ] = None
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Mean time between two faults.")
    ] = 10.0
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed gives the same schedule.")
    ] = 0
    at_most: Annotated[int | None, typer.Option(min=0, help="Number of faults.")] = None
    after: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time before the first fault.")
    ] = 0.0


@dataclass(frozen=True, slots=True)
class FaultTargets(OptionGroup):
    """What the faults hit, and how hard."""

    folder: Annotated[
        Path | None,
        typer.Option(help="Folder to damage files in and to fill (flip, truncate, fill)."),
    ] = None
    match: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Hit only processes with this in their command line."),
    ] = ""
    launcher: Annotated[
        bool,
        typer.Option("--launcher", help="Never hit CMD itself, which only starts other processes."),
    ] = False
    hold: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long a stop, a limit or a full disk lasts."),
    ] = 5.0
    ballast: Annotated[
        int, typer.Option(metavar="BYTES", min=1, help="Most disk space that `fill` may take.")
    ] = 1 << 28


def chaos(
    context: typer.Context,
    when: FaultSchedule,
    targets: FaultTargets,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time limit of CMD.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the report to this file, as JSON.")
    ] = None,
    *,
    printing: Printing,
) -> None:
    """Run CMD under injected faults: kill, stop, flip bits, cut files, fill the disk.

    Usage: ettr chaos --launcher --fault kill --every 20 -- torchrun ... train.py. Processes are
    drawn from those below CMD (without --launcher CMD itself as long as it has had none); files
    only from --folder. Everything held is given back. Exit 1 if CMD did not end with status 0.
    """
    from ettr.chaos import ChaosPlan, Fault, run, schedule
    from ettr.report.rows import plain

    faults = schedule(
        when.seed,
        when.fault or [Fault.KILL],
        every_s=when.every,
        for_s=_LONGEST_S if timeout is None else timeout,
        after_s=when.after,
        at_most=when.at_most,
    )
    plan = ChaosPlan(
        faults,
        None if targets.folder is None else str(targets.folder),
        targets.match,
        hold_s=targets.hold,
        ballast_bytes=targets.ballast,
    )
    outcome = run(
        context.args, plan, timeout_s=timeout, launcher=targets.launcher, on_event=complain
    )
    document = outcome.as_dict() | {"seed": when.seed, "every_s": when.every}
    if report is not None:
        write_text(report, json_.dumps(document, indent=2) + "\n")
    if not printing.summary(plain(document)):
        _print(outcome)
    if not outcome.survived:
        raise typer.Exit(1)


def _print(outcome: ChaosReport) -> None:
    for one in outcome.done:
        say(f"{one.at_s:8.2f} s  {one.fault:<8} {one.what}")
    ended = "was ended by its time limit" if outcome.timed_out else f"status {outcome.status}"
    say(f"{len(outcome.done)} faults in {outcome.wall_s:.1f} s; the command: {ended}")


# -- `ettr verify`: check every byte of a checkpoint, without a model ------------------------------


def verify(
    root: Annotated[
        str,
        typer.Argument(
            help="Folder of a running checkpoint or of one of CheckedWriter, or a copy's URL."
        ),
    ],
    step: Annotated[
        int | None,
        typer.Option(help="Step that the training has reached; ages count back from it."),
    ] = None,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print metrics for Prometheus' textfile collector.")
    ] = False,
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", metavar="FILE", help="Write these metrics to a file."),
    ] = None,
    each_block: Annotated[
        bool, typer.Option("--each-block", help="Metrics of every block, not only of slots.")
    ] = False,
    *,
    printing: Printing,
) -> None:
    """Check every record of a checkpoint and print the ages of its blocks; exit 1 if one is lost.

    A record torn by a kill is damaged and not lost: the block's other copy is intact. While a
    training run writes into the checkpoint, the record it is writing may show as damaged, not as
    lost.
    """
    from ettr.checkpoint import prometheus_text, write_metrics
    from ettr.checkpoint.remote import at_hand

    with at_hand(root) as folder:
        checked = _check(folder)
    steps = checked.steps
    reached = step if step is not None else max(steps, default=0)
    text = prometheus_text(checked.ages, step=reached, bad=checked.damaged, each_block=each_block)
    if metrics is not None:
        write_metrics(metrics, text)
    if prometheus:
        say(text.rstrip())
    elif not printing.summary(
        {
            "root": root,
            "blocks": len(checked.ages),
            "unsaved": len(checked.ages) - len(steps),
            "oldest_step": min(steps, default=None),
            "newest_step": max(steps, default=None),
            "superseded_slots": list(checked.superseded_slots),
            "damaged": [asdict(finding) for finding in checked.damaged],
            "lost": checked.lost,
        }
    ):
        for line in _lines(checked):
            say(line)
    if checked.lost:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Checked:
    ages: list[BlockAge]
    damaged: list[BadBlock]
    superseded_slots: tuple[str, ...] = ()

    @property
    def steps(self) -> list[int]:
        """Of the blocks that are saved."""
        return [age.step for age in self.ages if age.step is not None]

    @property
    def lost(self) -> int:
        """Number of damaged records whose block has no good one."""
        return sum(finding.lost for finding in self.damaged)


def _check(root: Path) -> _Checked:
    from ettr.checkpoint import survey, verify, verify_dcp

    if (root / "checkpoint.json").is_file():
        return _Checked([], verify_dcp(root))
    surveyed = survey(root)
    return _Checked(surveyed.ages, verify(root), surveyed.superseded_slots)


def _lines(checked: _Checked) -> Iterator[str]:
    if checked.ages:
        steps = checked.steps
        span = f"steps {min(steps)} to {max(steps)}" if steps else "none saved"
        unsaved = len(checked.ages) - len(steps)
        yield f"{len(checked.ages)} blocks, {span}" + (
            f", {unsaved} never saved" if unsaved else ""
        )
    if checked.superseded_slots:
        names = ", ".join(checked.superseded_slots)
        yield f"slots of another number of ranks, not read any more: {names}"
    for finding in checked.damaged:
        place = f"{finding.fqn} at {list(finding.offsets)}" if finding.fqn else "file"
        fate = "LOST" if finding.lost else "the older copy is intact"
        yield (
            f"slot {finding.slot} generation {finding.generation} {place} "
            f"place {finding.place}: {finding.reason} ({fate})"
        )
    if checked.damaged:
        yield f"{len(checked.damaged)} damaged, {checked.lost} lost"
    else:
        yield "every record is intact"


# -- `ettr measure-recovery`: what a stale shard costs a model of the user's -----------------------


def measure_recovery(
    builder: Annotated[
        str,
        typer.Argument(
            metavar="FILE:FUNCTION",
            help="Function without arguments that returns the state (as for "
            "RunningCheckpoint) and a function from a step's number to its loss.",
        ),
    ],
    root: Annotated[Path, typer.Argument(help="Empty folder for the experiment's checkpoints.")],
    steps: Annotated[int, typer.Option(help="Steps of the undisturbed run.")],
    failures: Annotated[int, typer.Option(help="Number of steps at which to try a loss.")] = 5,
    ranks: Annotated[
        int, typer.Option(help="Number of ranks; a partial recovery restores the part of one.")
    ] = 4,
    policy: Annotated[str, typer.Option(help="Policy of the running checkpoint.")] = "priority",
    fraction: Annotated[float, typer.Option(help="Share of the blocks that one round saves.")] = 1
    / 8,
    every_steps: Annotated[int, typer.Option(help="Steps from one round to the next.")] = 10,
    window: Annotated[int, typer.Option(help="Steps over which to average a loss.")] = 10,
    seed: Annotated[
        int, typer.Option(help="Random seed of the steps at which a loss is tried.")
    ] = 0,
    *,
    printing: Printing,
) -> None:
    """Measure what a partial recovery costs your model: two values of `RecoveryPolicy`.

    It also prints times and rates of saves and restores as options of `ettr plan`. It runs your
    function's code, and trains failures · (ranks + 2) / 2 times as long as one undisturbed run.
    """
    build: Build = user_function(builder)
    from ettr.checkpoint import RecoveryExperiment
    from ettr.checkpoint import measure_recovery as measure

    experiment = RecoveryExperiment(
        steps=steps,
        failures=failures,
        ranks=ranks,
        policy=policy,
        fraction=fraction,
        every_steps=every_steps,
        window=window,
        seed=seed,
    )
    costs = measure(build, experiment, root, progress=complain)
    if not printing.summary(
        {
            **costs.policy_values,
            "partial": asdict(costs.partial),
            "composite": asdict(costs.composite),
            "mean_age_steps": costs.mean_age_steps,
            "noise_steps": costs.noise_steps,
            "failure_steps": list(costs.failure_steps),
            "plan": asdict(costs.terms),
        }
    ):
        say(str(costs))


def user_function(builder: str) -> Any:
    """The function of the user's file, `FILE:FUNCTION`.

    Raises:
        UsageError: there is no such file or function.
    """
    name, _, function = builder.rpartition(":")
    path = Path(name)
    if not name or not path.is_file():
        raise UsageError(f"{builder}: give FILE:FUNCTION, such as train.py:build; no file {name!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    build = getattr(module, function, None)
    if not callable(build):
        raise UsageError(f"{path}: has no function {function!r}")
    return build


# -- what feeds a training run -------------------------------------------------------------------


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
