"""The figures that sources of schemes print, from settings near theirs; the page says the same."""

import re
from pathlib import Path

import pytest

from ettr.estimates import Interval
from ettr.plan.ranking import rank
from ettr.plan.schemes import (
    Asynchronous,
    Concurrent,
    Domain,
    EmbeddingParity,
    JobShape,
    JustInTime,
    JustInTimeSystem,
    LoggingReplay,
    MemoryCopies,
    MemoryErasure,
    PartialExperts,
    PartialRecovery,
    Scheme,
    Synchronous,
)
from ettr.plan.schemes.base import lost_by_domain_s
from printed_digits import printed

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "checkpoint-schemes.md"
ROWS = {
    row[0]: row[2]
    for row in re.findall(
        r"^\| ([^|]+) \| ([^|]*) \| ([^|]*) \| [^|]* \|$",
        PAGE.read_text("utf-8").partition("## Published headlines")[2],
        re.MULTILINE,
    )
}


def figures(row: str) -> list[str]:
    """Numbers in the planner's column of a row."""
    return re.findall(r"[\d,]*\d(?:\.\d+)?", ROWS[row])


def overhead(job: JobShape, per_day: float, scheme: Scheme) -> float:
    """Share of the time lost where every failure is that of a node."""
    (one,) = rank(job, {Domain.NODE: Interval(per_day, per_day, per_day)}, [scheme])
    assert one.ettr.estimate is not None
    return 1.0 - one.ettr.estimate


def test_cpr_without_repeated_work() -> None:
    job = JobShape(
        n_nodes=18, state_bytes=1e12, step_s=1.0, storage_bytes_per_s=10e9, replace_s=200.0
    )
    full = 100 * overhead(job, 2.4, Synchronous())
    partial = 100 * overhead(job, 2.4, PartialRecovery(iteration_cost_share=0.0))
    assert 8.2 <= full <= 8.5
    assert 0.53 <= partial <= 0.68
    assert [full, partial] == [printed(figure) for figure in figures("partial recovery, CPR")]
    assert 100 * overhead(job, 2.4, PartialRecovery()) == printed("0.95")


@pytest.mark.parametrize(("share", "saved"), [(0.05, 95), (0.22, 78), (0.3, 70)])
def test_scar_s_saving_is_one_less_its_iteration_cost(share: float, saved: float) -> None:
    job = JobShape(n_nodes=64, state_bytes=1e12, step_s=1.0, storage_bytes_per_s=100e9)
    lost = [
        lost_by_domain_s(scheme.terms(job), job, 600.0)[Domain.NODE]
        for scheme in (Asynchronous(), PartialRecovery(share))
    ]
    assert 100 * (1 - lost[1] / lost[0]) == pytest.approx(saved)


def test_moc_checkpoint_and_its_overhead() -> None:
    job = JobShape(
        n_nodes=8,
        state_bytes=1e12,
        step_s=1.0,
        device_bytes_per_s=100e9,
        storage_bytes_per_s=800e9 / 37.5,
        expert_share=0.66,
    )
    part, whole = PartialExperts().terms(job), Synchronous().terms(job)
    size, cost = figures("partial experts")
    assert 100 * (1 - part.stall_s / job.snapshot_s) == pytest.approx(float(size), abs=0.06)
    assert 100 * (1 - part.stall_s / whole.stall_s) == printed(cost)


def test_ecrm_against_dear_checkpoints() -> None:
    job = JobShape(
        n_nodes=20,
        state_bytes=1e12,
        step_s=1.0,
        storage_bytes_per_s=2e9,
        embedding_share=0.95,
    )
    saved = overhead(job, 2.4, Synchronous())
    assert 100 * saved == printed("17.6")
    less = 1 - overhead(job, 2.4, EmbeddingParity()) / saved
    assert 100 * less == printed(*figures("embedding parity"))


def test_just_in_time_takes_minutes_or_seconds() -> None:
    job = JobShape(n_nodes=8, state_bytes=10e9, step_s=1.0, storage_bytes_per_s=1e9, replicas=8)
    user, system = (
        scheme.terms(job).responses[Domain.PROCESS] for scheme in (JustInTime(), JustInTimeSystem())
    )
    minutes, seconds = figures("just in time")
    assert user.restart_s / 60 == printed(minutes)
    assert system.restart_s + system.lost_s == printed(seconds)
    # nearly no steady overhead
    assert overhead(job, 1e-9, JustInTimeSystem()) < 1e-6


def test_gemini_s_recovery() -> None:
    """1.2 TB on 16 nodes of 400 Gb/s, storage of 20 Gb/s, a checkpoint with each step of 62 s."""
    job = JobShape(
        n_nodes=16,
        state_bytes=1.2e12,
        step_s=62.0,
        storage_bytes_per_s=2.5e9,
        network_bytes_per_s=50e9,
    )

    def wasted_s(scheme: Scheme, interval_s: float) -> float:
        terms = scheme.terms(job)
        load_s = terms.responses[Domain.NODE].restart_s - job.restart_s
        return lost_by_domain_s(terms, job, interval_s)[Domain.NODE] + load_s

    stored, in_memory = wasted_s(Asynchronous(), 480.0), wasted_s(MemoryCopies(), 62.0)
    assert (stored, in_memory) == (pytest.approx(1200.0), printed("97"))
    assert stored / in_memory == printed(*figures("in-memory copies"))


def test_pccheck_at_one_interval_and_at_the_best_ones() -> None:
    job = JobShape(
        n_nodes=8,
        state_bytes=1e11,
        step_s=1.0,
        storage_bytes_per_s=0.3e9,
        one_writer_share=0.25,
        restart_s=60.0,
    )
    interval_s = job.write_alone_s / 2.95
    assert interval_s >= Concurrent().terms(job).shortest_interval_s
    # CheckFreq waits until the write before has ended; PCcheck has 3 % of overhead
    waiting, through = interval_s / job.write_alone_s, 1 / 1.03
    assert through / waiting == printed(*figures("concurrent"))
    gain = (1 - overhead(job, 50.0, Concurrent())) / (1 - overhead(job, 50.0, Asynchronous()))
    assert gain == printed("1.4")


def test_swift_against_synchronous_checkpoints() -> None:
    job = JobShape(
        n_nodes=2048,
        state_bytes=10e12,
        step_s=10.0,
        storage_bytes_per_s=200e9,
        logged_bytes_per_step=1e8,
    )
    ettrs = [
        1 - overhead(job, 13.3, scheme)
        for scheme in (LoggingReplay(), Synchronous(), Asynchronous())
    ]
    assert ettrs[0] / ettrs[1] == printed(*figures("logging and replay"))
    assert ettrs[0] / ettrs[2] == printed("1.04")


def test_reft_saves_where_storage_is_not_waited_for() -> None:
    def usable_after_s(scheme: Scheme, storage_bytes_per_s: float) -> float:
        terms = scheme.terms(
            JobShape(
                n_nodes=64, state_bytes=1e12, step_s=1.0, storage_bytes_per_s=storage_bytes_per_s
            )
        )
        return terms.stall_s + terms.lag_s

    memory_s, storage_s = (usable_after_s(s, 155e9) for s in (MemoryErasure(), Asynchronous()))
    assert storage_s / memory_s > 14
    assert [storage_s / memory_s] == [
        printed(figure) for figure in figures("in-memory erasure code")
    ]
    assert [storage_s, memory_s] == [printed("6.6"), printed("0.47")]
    slower = usable_after_s(Asynchronous(), 50e9) / usable_after_s(MemoryErasure(), 50e9)
    assert slower == printed("43")
