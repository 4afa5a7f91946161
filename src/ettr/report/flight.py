"""The verdict on flight records as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ettr.flight import Culprit, FlightVerdict, Refusal, StuckCollective, VerdictKind
from ettr.report.numbers import duration
from ettr.report.text import wrapped
from ettr.words import counted

_SHOWN = 16
_INDENT = "  "

_HEADLINES = {
    VerdictKind.MISSING: "A collective hangs: some ranks did not start it.",
    VerdictKind.MISMATCH: "Ranks called different collectives in the same place.",
    VerdictKind.NO_RECORD: "Some ranks left no record, and the others wait for them.",
    VerdictKind.CIRCULAR: "Ranks wait for each other in a circle: they call the collectives of "
    "several groups in different orders.",
    VerdictKind.ALL_INSIDE: "Every rank is in the same collective and none has left it: suspect "
    "the network or a device; the records name no rank.",
    VerdictKind.LATE: "No rank is missing. One came late.",
    VerdictKind.NOTHING_HANGS: "Nothing hangs in these records.",
    VerdictKind.UNKNOWN: "These records do not show what holds the job up.",
}


def flight_text(verdict: FlightVerdict, refused: Sequence[Refusal] = ()) -> str:
    """Verdict, culprits, collectives that hang, late ranks, what limits the verdict."""
    parts = [wrapped(f"Verdict: {verdict.verdict}. {_HEADLINES[verdict.verdict]}")]
    if verdict.culprits:
        parts.append("\n".join(_culprit(one) for one in verdict.culprits[:_SHOWN]))
    parts += ["\n".join(_stuck(one)) for one in verdict.stuck[:_SHOWN]]
    if verdict.late:
        parts.append("\n".join(_late(verdict)))
    parts += [wrapped(f"{reason[0].upper()}{reason[1:]}.") for reason in verdict.reasons]
    parts.append("\n".join(_read(verdict, refused)))
    return "\n\n".join(parts)


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as ranges: 0-3, 7."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:_SHOWN]]
    more = [f"... {len(runs) - _SHOWN} more"] if len(runs) > _SHOWN else []
    return ", ".join([*shown, *more])


def _culprit(culprit: Culprit) -> str:
    node = f" on {culprit.node}" if culprit.node else ""
    return f"{_INDENT}rank {culprit.rank}{node}: {culprit.because}"


def _stuck(stuck: StuckCollective) -> Iterator[str]:
    described = stuck.description not in {"", "undefined"}
    group = f"{stuck.group} ({stuck.description})" if described else stuck.group
    size = f", {counted(stuck.members, 'rank')}" if stuck.members is not None else ""
    yield f"{stuck.name} {stuck.seq} of group {group}{size}"
    sizes = f"; sizes {stuck.sizes}" if stuck.sizes else ""
    yield f"{_INDENT}started by {ranks_text(stuck.started)}{sizes}"
    if stuck.waiting:
        waited = f" for {duration(stuck.waited_s)}" if stuck.waited_s is not None else ""
        yield f"{_INDENT}waiting{waited}: {ranks_text(stuck.waiting)}"
    for words, ranks in (
        ("not started by", stuck.missing),
        ("something else called by", stuck.mismatched),
        ("no record of", stuck.without_record),
        ("not known of", stuck.overwritten),
    ):
        if ranks:
            yield f"{_INDENT}{words} {ranks_text(ranks)}"
    for text, times in stuck.calls:
        yield f"{_INDENT}{_INDENT}{counted(times, 'rank')}: {text}"
    elsewhere = {*stuck.culprits} - {*stuck.missing, *stuck.mismatched, *stuck.without_record}
    if elsewhere and stuck.kind is not VerdictKind.LATE:
        yield f"{_INDENT}these wait elsewhere, in the end for {ranks_text(stuck.culprits)}"


def _late(verdict: FlightVerdict) -> Iterator[str]:
    yield "Last to start, by a second or more:"
    for one in verdict.late[:_SHOWN]:
        node = f" on {one.node}" if one.node else ""
        after = "; later than the timeout" if one.after_timeout else ""
        yield (
            f"{_INDENT}rank {one.rank}{node}: {counted(one.times, 'time')}, by "
            f"{duration(one.longest_s)} at most (group {one.group}, collective {one.seq}){after}"
        )


def _read(verdict: FlightVerdict, refused: Sequence[Refusal]) -> Iterator[str]:
    of = f" of {counted(verdict.world_size, 'rank')}" if verdict.world_size else ""
    yield f"{counted(verdict.records, 'record')}{of} read"
    if verdict.without_record:
        yield f"{_INDENT}no record of rank {ranks_text(verdict.without_record)}"
    if verdict.superseded:
        yield f"{_INDENT}{counted(verdict.superseded, 'older record')} of the same ranks not read"
    if verdict.unreadable_entries:
        yield f"{_INDENT}{counted(verdict.unreadable_entries, 'entry', 'entries')} not readable"
    for one in refused[:_SHOWN]:
        yield f"{_INDENT}not read: {one.file}: {one.reason}"
    if len(refused) > _SHOWN:
        yield f"{_INDENT}not read: {len(refused) - _SHOWN} more files"
