"""What is below ETTR: each factor of the effective ratio, and the runs that a check stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ettr.estimates import Interval
from ettr.metrics.runs import BelowEttr, FleetChecks, StoppedRun, below_ettr
from ettr.report.numbers import bounds, number, percent, share_between
from ettr.report.registry import Part
from ettr.report.section import Section, TextTable
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis

_NOT_MEASURED = "not measured"


def below_section(found: BelowEttr) -> Section:
    """The factors, the gates, and which check stopped which run."""
    stopped = len(found.stopped)
    factors = TextTable(
        "Factors of the effective ratio",
        ("factor", "value", "evidence", "remedy"),
        (
            (
                "ETTR, including waits for data",
                _share(found.ettr),
                counted(found.measured_runs, "run") + " with progress records",
                "checkpoints, restarts: `ettr plan`",
            ),
            (
                "1 - input stall",
                _left(found.input_stall),
                _waits(found),
                "`ettr input trace`, `plan`",
            ),
            (
                "1 - redundant work",
                _left(found.redundant_work_range),
                f"{counted(found.probed_runs, 'run')} with a probe"
                if found.probed_runs
                else "no probe of samples or augmentation",
                "`ettr.samples`",
            ),
            (
                "P(run kept)",
                share_between(found.run_kept) if found.run_kept else _NOT_MEASURED,
                counted(found.checked_runs, "checked run"),
                "checks earlier in a run",
            ),
            ("product of those measured", _share(found.effective_at_most), "", ""),
        ),
        frozenset({1}),
    )
    gates = TextTable(
        "Checks",
        ("gate", "checks", "passed", "failed", "not decided", "GPU-hours"),
        tuple(
            (
                one.gate,
                number(one.checks),
                number(one.passed),
                number(one.failed),
                number(one.undecided),
                _NOT_MEASURED if one.gpu_hours is None else number(one.gpu_hours),
            )
            for one in found.gates
        ),
        frozenset(range(1, 6)),
    )
    tables = (
        factors,
        *((gates,) if found.gates else ()),
        *((_stopped([("", one) for one in found.stopped]),) if stopped else ()),
    )
    note = (
        "The product is an upper bound of the effective ratio: a factor not measured is at most 1."
    )
    return Section("below-ettr", "Below ETTR", _lead(found), (), tables, (note,))


def _lead(found: BelowEttr) -> str:
    """What the waits for data and the checks came to."""
    words = []
    if found.input_stall is not None:
        most = "" if found.input_stall.low == found.input_stall.high else "At most "
        stall = percent(found.input_stall.estimate)
        waited = f"{most}{stall} of training time was spent waiting for data"
        hours = found.input_gpu_hours
        words.append(waited + (f", {number(hours, 4)} GPU-hours." if hours is not None else "."))
    if found.checked_runs:
        decided = found.checked_runs - found.undecided_runs
        cost = found.gate_gpu_hours
        says = f"Checks stopped {len(found.stopped)} of {counted(decided, 'run')}"
        words.append(says + (f", and cost {number(cost)} GPU-hours." if cost is not None else "."))
    if found.undecided_runs:
        words.append(f"{counted(found.undecided_runs, 'run')} more: not decided.")
    return " ".join(words)


def _waits(found: BelowEttr) -> str:
    """What the factor of the waits rests on."""
    if not found.timed_runs:
        return "no waits recorded: use `ProgressRecorder.batches`"
    is_open = found.input_stall is not None and found.input_stall.low < found.input_stall.high
    more = "; the host's waits, an upper bound" if is_open else ""
    return f"{counted(found.timed_runs, 'run')} with timed waits{more}"


def checks_table(fleets: tuple[FleetChecks, ...]) -> TextTable:
    """What the checks of several fleets came to."""
    return TextTable(
        "Runs that passed their checks",
        ("fleet", "runs checked", "P(run kept)", "stopped", "GPU-hours of checks"),
        tuple(
            (
                one.name,
                number(one.checked_runs),
                share_between(one.run_kept) if one.run_kept else _NOT_MEASURED,
                number(len(one.stopped)),
                _NOT_MEASURED if one.gate_gpu_hours is None else number(one.gate_gpu_hours),
            )
            for one in fleets
        ),
        frozenset(range(1, 5)),
        in_brief=True,
    )


def stopped_of_fleets(fleets: tuple[FleetChecks, ...]) -> TextTable:
    """Which check stopped which run of which fleet, at which cost."""
    return _stopped([(f"{one.name}: ", run) for one in fleets for run in one.stopped])


def _stopped(runs: Sequence[tuple[str, StoppedRun]]) -> TextTable:
    return TextTable(
        "Runs that a check stopped",
        ("run", "step", "gate", "found", "GPU-hours", "evidence"),
        tuple(
            (
                f"{of}{one.run}",
                number(one.step),
                one.gate,
                f"{number(one.value)} [{number(one.low)}, {number(one.high)}]",
                _NOT_MEASURED if one.gpu_hours is None else number(one.gpu_hours),
                one.evidence or "",
            )
            for of, one in runs
        ),
        frozenset({1, 3, 4}),
        in_brief=True,
    )


def _share(value: float | None) -> str:
    return _NOT_MEASURED if value is None else percent(value)


def _left(share: Interval | None) -> str:
    if share is None or share.estimate is None:
        return _NOT_MEASURED
    return bounds(Interval(1 - share.estimate, 1 - share.high, 1 - share.low))


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    found = analysis.ask(below_ettr)
    has_any = found.checked_runs or found.timed_runs or found.probed_runs
    return (below_section(found),) if has_any else ()


BELOW_ETTR = Part("below_ettr", place=95, question=below_ettr, sections=_sections, in_python=False)
