"""What the ranking of schemes stands on: turning points are where they are said to be."""

import random
from dataclasses import replace
from typing import Any

import pytest

from ettr.plan.assumed import JOB_RANGES, JOB_SHARE, Setting, assumptions_of
from ettr.plan.ranking import NodeRate, Ranked, Standing, rank, rank_by_shares, standing
from ettr.plan.schemes import SCHEMES, JobShape

RATE = NodeRate(6.5e-3, 5e-3, 8e-3)
NODES = {"node": 1.0}
JOB = JobShape(
    n_nodes=2048,
    state_bytes=5.7e12,
    step_s=5.0,
    storage_bytes_per_s=200e9,
    replicas=16,
    embedding_share=0.6,
    expert_share=0.66,
)
ALL = frozenset({*JOB_RANGES, JOB_SHARE})


def stand(
    job: JobShape = JOB,
    assumed: frozenset[str] = ALL,
    shares: dict[str, float] = NODES,
    rate: NodeRate = RATE,
) -> tuple[tuple[Ranked, ...], Standing]:
    ranked = rank_by_shares(job, rate, shares)
    return ranked, standing(job, rate, shares, ranked, assumed)


def leader(job: JobShape, shares: dict[str, float], schemes: Any = SCHEMES) -> str:
    from ettr.estimates import Interval
    from ettr.plan.schemes import Domain

    per_day = {
        domain: Interval(rate, rate, rate)
        for domain in Domain
        for rate in (RATE.design * job.n_nodes * shares.get(domain.key, 0.0),)
    }
    return rank(job, per_day, schemes)[0].scheme.name


class TestTurningPoints:
    @pytest.mark.parametrize("n_nodes", [64, 2048, 16384])
    @pytest.mark.parametrize("replicas", [1, 16])
    def test_the_ranking_itself_turns_there(self, n_nodes: int, replicas: int) -> None:
        job = replace(JOB, n_nodes=n_nodes, replicas=replicas)
        ranked, found = stand(job)
        assert found.first == ranked[0].scheme.name
        for point in found.turning_points:
            one = point.assumption
            step = 0.02 * (one.high - one.low)
            toward = 1.0 if point.turns_at > one.value else -1.0
            before, after = (
                self.first_at(job, point, point.turns_at + side * toward * step * 0.05)
                for side in (-1.0, 1.0)
            )
            assert before == found.first, point.sentence
            assert after != found.first, point.sentence

    def first_at(self, job: JobShape, point: Any, value: float) -> str:
        one = point.assumption
        value = min(max(value, one.low), one.high)
        settings = [Setting(scheme, job, NODES).under(one, value) for scheme in SCHEMES]
        return leader(
            settings[0].job, dict(settings[0].shares), tuple(at.scheme for at in settings)
        )

    def test_the_slow_replacement_of_the_review_turns_the_table(self) -> None:
        """16,384 GPUs, all failures one node, no replica: a replacement as slow as a restart."""
        _, found = stand(replace(JOB, replicas=1, embedding_share=0.0))
        labels = {point.assumption.label for point in found.turning_points}
        assert "--replace" in labels
        assert "--restart" in labels
        replacing = next(p for p in found.turning_points if p.assumption.label == "--replace")
        assert 60.0 < replacing.turns_at <= 300.0

    def test_the_nearest_is_named_first(self) -> None:
        _, found = stand()
        shares = [point.share_of_range for point in found.turning_points]
        assert shares == sorted(shares)
        assert found.turning_points[0].sentence in found.sentences[0]

    def test_what_is_given_is_no_assumption(self) -> None:
        _, found = stand(assumed=ALL - {"replace_s", "restart_s"})
        assert {"--replace", "--restart"}.isdisjoint(one.label for one in found.assumptions)
        for rests_on in found.rests_on.values():
            assert {"--replace", "--restart"}.isdisjoint(one.label for one in rests_on)


class TestBands:
    @pytest.mark.parametrize("seed", range(4))
    def test_a_plan_within_the_ranges_lies_within_the_band(self, seed: int) -> None:
        ranked, found = stand()
        rng = random.Random(seed)
        at = {one.scheme.name: Setting(one.scheme, JOB, NODES) for one in ranked}
        for assumption in assumptions_of(JOB, [one.scheme for one in ranked], ALL):
            if assumption.name == "host_bytes":
                continue
            value = rng.uniform(assumption.low, assumption.high)
            at = {name: setting.under(assumption, value) for name, setting in at.items()}
        some = next(iter(at.values()))
        other = rank_by_shares(some.job, RATE, dict(some.shares))
        assert {one.scheme.name for one in other}
        for name, band in found.bands.items():
            setting = at[name]
            (own,) = rank(setting.job, _per_day(setting), [setting.scheme])
            if own.usable:
                assert band.low - 1e-6 <= (own.ettr.estimate or 0.0) <= band.high + 1e-6, name

    def test_it_holds_the_band_of_the_rate(self) -> None:
        ranked, found = stand(assumed=frozenset())
        for one in ranked:
            if one.usable:
                band = found.bands[one.scheme.name]
                assert band.low <= one.ettr.low + 1e-9
                assert band.high >= one.ettr.high - 1e-9

    def test_what_it_rests_on_moves_it(self) -> None:
        _, found = stand()
        copies = [one.label for one in found.rests_on["in-memory copies"]]
        assert copies[0] == "--restart"
        assert "--replace" not in copies


def _per_day(setting: Setting) -> Any:
    from ettr.estimates import Interval
    from ettr.plan.schemes import Domain

    return {
        domain: Interval(rate, rate, rate)
        for domain in Domain
        for rate in (RATE.design * setting.job.n_nodes * setting.shares.get(domain.key, 0.0),)
    }


class TestRestart:
    def test_schemes_that_never_restart_are_named(self) -> None:
        _, found = stand()
        assert "partial recovery" in found.fixed_restart
        assert "synchronous" not in found.fixed_restart
        assert any("does not depend on --restart" in text for text in found.sentences)

    def test_with_failures_of_the_whole_job_none_is(self) -> None:
        _, found = stand(shares={"node": 0.95, "job": 0.05})
        assert found.fixed_restart == ()


def test_no_usable_scheme_has_no_first_place() -> None:
    ranked = tuple(replace(one, usable=False) for one in rank_by_shares(JOB, RATE, NODES))
    found = standing(JOB, RATE, NODES, ranked, ALL)
    assert found.first is None
    assert found.sentences == ()


def test_without_progress_there_is_no_order() -> None:
    """A million GPUs at 1,000 failures per 1,000 node-days: a failure every 0.7 s."""
    job = replace(JOB, n_nodes=125_000)
    _, found = stand(job, rate=NodeRate(1.0, 1.0, 1.0))
    assert found.sentences == (
        "No scheme makes progress at this failure rate, so their order means nothing.",
    )
