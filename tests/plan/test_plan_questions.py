"""Cost, time budget, phases, maintenance, node types, second plan: against arithmetic by hand."""

import json
import random
import re
from dataclasses import replace
from typing import Any

import pytest

from cli.program import ettr
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.plan.intervals import with_best_interval
from ettr.plan.questions import NodeType, mixed_rate
from ettr.plan.run import PlannedRun
from ettr.plan.wallclock import TimeBudget, deadline_plan, sized

DAY = 86400.0
RATES = (("a", 0.1 / 1000), ("b", 6.5 / 1000), ("c", 0.3))
RATE = ("--failures-per-1000-node-days", "6.5")
RUN = PlannedRun(
    failures_per_node_day=6.5e-3,
    n_nodes=512,
    interval_s=1800.0,
    write_s=30.0,
    restart_s=300.0,
    productive_s=10 * DAY,
)


def plan(*args: str) -> dict[str, Any]:
    done = ettr("plan", *args, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


class TestCost:
    def test_money_is_held_gpu_hours_times_the_price(self) -> None:
        found = plan("--gpus", "4096", *RATE, "--days", "10", "--gpu-hour-price", "2.50usd")
        cost = found["answers"]["cost"]
        assert cost["productive_gpu_hours"] == 4096 * 240
        held = cost["held_gpu_hours"]["estimate"]
        assert held == pytest.approx(4096 * 240 / found["ettr"]["estimate"])
        assert cost["price"] == {"per_gpu_hour": 2.5, "currency": "USD"}
        text = ettr(
            "plan",
            "--gpus",
            "4096",
            *RATE,
            "--days",
            "10",
            "--gpu-hour-price",
            "2.50USD",
            "--detail",
        ).out
        assert f"{held * 2.5:,.0f}" in text

    def test_waits_hold_no_gpu(self) -> None:
        queued = plan("--gpus", "4096", *RATE, "--write", "1min", "--queue", "1h")
        at_once = plan("--gpus", "4096", *RATE, "--write", "1min")
        # the wait stretches the day, so that less is done in it, for the same GPU time a piece
        ratios = [
            one["answers"]["cost"]["held_gpu_hours"]["estimate"]
            / one["answers"]["cost"]["productive_gpu_hours"]
            for one in (queued, at_once)
        ]
        assert ratios[0] == pytest.approx(ratios[1], rel=1e-9)

    @pytest.mark.parametrize("price", ["2.50", "$2", "cheap", "-1USD"])
    def test_a_price_has_a_currency(self, price: str) -> None:
        done = ettr("plan", "--gpus", "64", *RATE, "--gpu-hour-price", price)
        assert done.code == 2
        assert "2.50USD" in done.err


class TestTimeBudget:
    def test_it_is_the_smallest_size(self) -> None:
        budget = TimeBudget(11 * DAY, 0.9)
        found = deadline_plan(RUN, budget)
        assert found.smallest is not None
        assert found.smallest.chance >= 0.9
        fewer = sized(RUN, found.smallest.n_nodes - 1, found.work_node_s, budget)
        assert fewer.chance < 0.9

    def test_the_chance_is_that_of_a_simulation(self) -> None:
        found = deadline_plan(RUN, TimeBudget(11 * DAY, 0.9)).smallest
        assert found is not None
        run = replace(
            RUN,
            n_nodes=found.n_nodes,
            interval_s=found.interval_s,
            productive_s=found.productive_s,
        )
        rng = random.Random(1)
        draws = 1500
        in_time = sum(simulated_s(run, rng) <= 11 * DAY for _ in range(draws)) / draws
        # three standard errors of a share of .9
        assert in_time == pytest.approx(found.chance, abs=3 * (0.9 * 0.1 / draws) ** 0.5)

    def test_spares_follow_from_the_repair_time(self) -> None:
        found = deadline_plan(RUN, TimeBudget(12 * DAY, 0.9, repair_s=2 * DAY))
        assert found.smallest is not None
        assert found.smallest.spares is not None
        # about 6.7 failures in two days: Erlang's loss at 1 %
        assert 8 <= found.smallest.spares <= 16

    def test_what_cannot_be_says_the_best(self) -> None:
        text = ettr(
            "plan",
            "--gpus",
            "131072",
            *RATE,
            "--write",
            "5min",
            "--days",
            "10",
            "--within",
            "10d",
            "--detail",
        ).out
        assert "No size ends within 10 d with 90 %" in " ".join(text.split())

    def test_a_budget_needs_the_work(self) -> None:
        done = ettr("plan", "--gpus", "64", *RATE, "--within", "10d")
        assert done.code == 2
        assert "give --days" in done.err

    def test_idle_options_are_refused(self) -> None:
        done = ettr("plan", "--gpus", "64", *RATE, "--repair", "2d")
        assert done.code == 2
        assert "--repair would change nothing: give --within" in done.err


def simulated_s(run: PlannedRun, rng: random.Random) -> float:
    """Wall-clock of one run, by its description: restart, segments, each lost with its write."""
    rate, clock = run.failures_per_s, 0.0
    left = run.productive_s
    next_failure = rng.expovariate(rate)

    def held(length_s: float) -> bool:
        nonlocal clock, next_failure
        if next_failure >= clock + length_s:
            clock += length_s
            return True
        clock = next_failure
        next_failure = clock + rng.expovariate(rate)
        return False

    while not held(run.restart_s):
        pass
    while left > 1e-6:
        work = min(run.interval_s, left)
        if held(work + run.write_s):
            left -= work
            continue
        while not held(run.restart_s):
            pass
    return clock


class TestPhases:
    def test_each_phase_is_a_run_of_its_own(self) -> None:
        found = plan("--gpus", "8192", *RATE, "--write", "30s", "--phases", "4096:10d,16384:20d")
        phases = found["answers"]["phases"]
        alone = [
            plan("--gpus", gpus, *RATE, "--write", "30s", "--days", days)
            for gpus, days in (("4096", "10d"), ("16384", "20d"))
        ]
        means = [one["wallclock"]["mean_s"] for one in alone]
        assert phases["wallclock_s"] == pytest.approx(sum(means))
        gpu_s = 4096 * means[0] + 16384 * means[1]
        assert phases["ettr"] == pytest.approx((4096 * 10 + 16384 * 20) * DAY / gpu_s)

    @pytest.mark.parametrize("phases", ["4096", "4096:10", "x:10d", ""])
    def test_a_phase_has_gpus_and_a_time(self, phases: str) -> None:
        assert ettr("plan", "--gpus", "64", *RATE, "--phases", phases).code == 2

    def test_each_phase_has_its_gpu_hours_and_its_price(self) -> None:
        given = ("--gpus", "4096", *RATE, "--write", "1min", "--queue", "1h")
        asked = ("--phases", "4096:10d,16384:5d", "--gpu-hour-price", "2USD")
        phases = plan(*given, *asked)["answers"]["phases"]
        for phase, gpus, days in zip(phases["phases"], ("4096", "16384"), ("10", "5"), strict=True):
            alone = plan("--gpus", gpus, *given[2:], "--days", days)["answers"]["cost"]
            assert phase["held_gpu_hours"] == pytest.approx(alone["held_gpu_hours"]["estimate"])
        text = ettr("plan", *given, *asked, "--detail").out
        total = sum(phase["held_gpu_hours"] for phase in phases["phases"])
        assert f"{2 * total:,.0f}" in text
        assert "Cost of a day as planned, not of its phases" in text

    def test_a_phase_that_will_not_end_says_so(self) -> None:
        given = ("--gpus", "4096", *RATE, "--write", "10min", "--restart", "1h", "--days", "10")
        text = ettr("plan", *given, "--phases", "4096:10d,1000000:1000d", "--detail").out
        assert "Phases of the run, of which one will not end" in text
        assert re.search(r"1,000,000 +1,000 d .* will not end +– +0.000", text)


class TestAbsurdRuns:
    @pytest.mark.parametrize("gpus", ["1000000", "8"])
    def test_no_number_is_longer_than_a_reader_counts(self, gpus: str) -> None:
        given = ("--gpus", gpus, "--failures-per-1000-node-days", "1000", "--days", "10000")
        times = ("--write", "10min", "--restart", "30min", "--interval", "1h", "--queue", "1d")
        asked = ("--maintenance", "4h/30d", "--phases", "64:10d,131072:100d", "--within", "365d")
        done = ettr("plan", *given, *times, *asked, "--gpu-hour-price", "2USD")
        assert done.code == 0, done.err
        assert not re.search(r"\d[\d,]{24}", done.out)

    def test_a_run_that_will_not_end_has_no_cost(self) -> None:
        given = ("--gpus", "1000000", "--failures-per-1000-node-days", "6.5", "--days", "54")
        times = ("--write", "10min", "--gpu-hour-price", "2USD")
        assert plan(*given, *times)["answers"]["cost"] is None
        assert (
            "No cost is given of a run that will not end"
            in ettr("plan", *given, *times, "--detail").out
        )


class TestMaintenance:
    def test_a_stop_costs_its_length_a_write_and_a_restart(self) -> None:
        # next to no failures: the arithmetic is that of the stops
        rate = ("--failures-per-1000-node-days", "0.000001")
        given = ("--gpus", "8", *rate, "--write", "60s", "--restart", "10min")
        found = plan(*given, "--maintenance", "4h/10d")["answers"]["maintenance"]
        assert found["share"] == pytest.approx((4 * 3600 + 60 + 600) / (10 * DAY), rel=1e-6)
        assert found["ettr"] == pytest.approx(1 - found["share"], rel=1e-3)

    def test_stops_that_leave_no_time_are_refused(self) -> None:
        done = ettr("plan", "--gpus", "8", *RATE, "--maintenance", "4h/3h")
        assert done.code == 2
        assert "leaves no time" in done.err


class TestNodeTypes:
    def test_rates_add(self) -> None:
        mixed = plan("--node-type", "a=1024@6.5", "--node-type", "b=1024@2.5")
        even = plan("--nodes", "2048", "--failures-per-1000-node-days", "4.5")
        assert mixed["mttf_h"]["estimate"] == pytest.approx(even["mttf_h"]["estimate"])
        assert mixed["mttf_h"]["low"] is None

    def test_evidence_of_all_types_joins(self) -> None:
        mixed = plan("--node-type", "a=512@200/50000", "--node-type", "b=512@200/50000")
        one = plan("--nodes", "1024", "--failures", "400", "--node-days", "100000")
        for end in ("estimate", "low", "high"):
            assert mixed["mttf_h"][end] == pytest.approx(one["mttf_h"][end], rel=0.01)

    def test_one_type_keeps_its_interval(self) -> None:
        rate = FailureRate(12, 3000.0).interval(0.9)
        assert mixed_rate([NodeType("a", 7, rate)]).low == pytest.approx(rate.low)
        assert mixed_rate([NodeType("a", 7, rate)]).high == pytest.approx(rate.high)

    def test_a_type_without_a_failure_adds_nothing_to_the_estimate(self) -> None:
        mixed = plan("--node-type", "a=1000@0/500", "--node-type", "b=1000@10/1000")
        rate = mixed["rate"]["per_node_day"]
        assert 1000 * rate["estimate"] == pytest.approx(5.0)
        # half of the distances of the exact ends: 10/1000 [5.43, 16.96], 0/500 [0, 5.99]
        assert 1000 * rate["low"] == pytest.approx(5.0 - 4.575 / 2, abs=0.01)
        assert 1000 * rate["high"] == pytest.approx(
            5.0 + (6.962**2 + 5.991**2) ** 0.5 / 2, abs=0.01
        )

    def test_no_failure_of_any_type_leaves_no_estimate(self) -> None:
        types = ("--node-type", "a=10@0/500", "--node-type", "b=10@0/500")
        mixed = plan(*types)
        assert mixed["rate"]["per_node_day"]["estimate"] is None
        assert mixed["rate"]["per_node_day"]["low"] == 0
        assert mixed["mttf_h"]["estimate"] is None
        text = ettr("plan", *types, "--detail").out
        assert "as nothing failed yet" in text
        assert "at most" in text

    def test_typed_rates_have_no_interval_however_they_round(self) -> None:
        for n_nodes in range(1, 60):
            typed = [NodeType(name, n_nodes, Interval(rate, rate, rate)) for name, rate in RATES]
            mixed = mixed_rate(typed)
            assert mixed.low == mixed.estimate == mixed.high

    def test_a_rate_is_given_once(self) -> None:
        done = ettr("plan", "--node-type", "a=64@6.5", *RATE)
        assert done.code == 2
        assert "more than one failure rate" in done.err
        done = ettr("plan", "--node-type", "a=64@6.5", "--gpus", "64", "--detail")
        assert "the node types add up to 64 nodes and the run has 8" in done.err
        with pytest.raises(UsageError):
            mixed_rate([])


class TestPaperForm:
    @pytest.mark.parametrize(
        ("times", "says"),
        [
            (("--write", "2h", "--restart", "0s"), "too high"),
            (("--write", "0s", "--interval", "10min"), "too low"),
            (("--restart", "4h"), "have no meaning from 1 up"),
        ],
    )
    def test_a_plan_says_to_which_side_it_errs(self, times: tuple[str, ...], says: str) -> None:
        given = ("--gpus", "100000", "--failures-per-1000-node-days", "6.5", *times)
        found = plan(*given)
        paper, exact = found["paper_ettr"], found["ettr"]["estimate"]
        (caution,) = (one for one in found["cautions"] if "The paper's forms" in one)
        assert says in caution
        assert "pessimistic" not in caution
        if paper is not None:
            assert (paper > exact) == (says == "too high")
            assert f"{paper:.3f}" in caution
            assert f"{exact:.3f}" in caution


JOB = ("--state-bytes", "1TB", "--step", "10s", "--bandwidth", "100GB/s", "--replicas", "4")
IN_PLACE = {
    "process": {
        "in-memory copies",
        "in-memory erasure code",
        "system-level just in time",
        "hot swap",
        "checkpointless",
        "replica restart",
        "communicator edit",
        "peer recovery",
        "logging and replay",
        "partial recovery",
        "embedding parity",
        "partial experts",
    },
    # a standby node is at hand
    "node": {"hot swap", "checkpointless"},
    "rack": set(),
    "job": set(),
}


class TestQueue:
    @staticmethod
    def ettr_by_scheme(fails: str, *queue: str) -> dict[str, float]:
        found = plan(
            *("--gpus", "4096", *RATE, *JOB, "--embedding-share", "0.5", "--expert-share", "0.5"),
            *("--failure-shares", f"{fails}=1", *queue),
        )
        return {one["name"]: one["ettr"]["estimate"] for one in found["schemes"] if one["usable"]}

    @pytest.mark.parametrize("fails", list(IN_PLACE))
    def test_only_recoveries_that_wait_for_something_are_charged(self, fails: str) -> None:
        at_once, queued = self.ettr_by_scheme(fails), self.ettr_by_scheme(fails, "--queue", "1h")
        assert IN_PLACE[fails] == {
            name for name, ettr in at_once.items() if queued[name] == pytest.approx(ettr, rel=1e-9)
        }

    def test_a_recovery_that_trains_on_loses_the_absent_part(self) -> None:
        at_once, queued = self.ettr_by_scheme("node"), self.ettr_by_scheme("node", "--queue", "1h")
        per_s = 512 * 6.5e-3 / 86400
        for name, absent_share in (("replica restart", 1 / 4), ("communicator edit", 1 / 512)):
            assert 1 - queued[name] / at_once[name] == pytest.approx(
                per_s * 3600 * absent_share, rel=0.05
            )

    @pytest.mark.parametrize("queue", [(), ("--queue", "1h")])
    def test_who_waits_is_stated_with_the_schemes(self, queue: tuple[str, ...]) -> None:
        found = plan("--gpus", "64", *RATE, *JOB, *queue)
        assert any("--queue counts when" in one for one in found["assumptions"]) == bool(queue)


class TestTwoPlans:
    def test_the_second_is_the_plan_with_other_options(self) -> None:
        given = ("--gpus", "16384", *RATE, "--write", "30s")
        both = plan(*given, "--versus", "restart=1min", "--versus", "gpus=8192")
        alone = plan("--gpus", "8192", *RATE, "--write", "30s", "--restart", "1min")
        assert both["versus"]["plan"]["ettr"] == alone["ettr"]
        assert both["ettr"] == plan(*given)["ettr"]

    @pytest.mark.parametrize(
        ("pair", "says"),
        [
            ("restart", "write OPTION=VALUE"),
            ("speed=9", "with an option among"),
            ("gpus=many", "is not a number"),
            ("restart=5", "number with its unit"),
            ("maintenance=4h/30d", "with an option among"),
            ("phases=64:1d", "with an option among"),
            ("gpu-hour-price=2USD", "with an option among"),
            ("within=9d", "with an option among"),
            ("explain=1", "with an option among"),
            ("node-type=a=8@1", "with an option among"),
            ("target=0.9", "with an option among"),
            ("per-1000-node-days=3", "failures-per-1000-node-days,"),
            ("step=2s", "changes nothing without --state-bytes"),
        ],
    )
    def test_a_wrong_pair_says_what_to_write(self, pair: str, says: str) -> None:
        done = ettr("plan", "--gpus", "64", *RATE, "--versus", pair)
        assert done.code == 2
        assert says in " ".join(done.err.split())

    @pytest.mark.parametrize(
        ("typed", "other"), [((), "days=3"), (("--days", "3"), "days=1000000")]
    )
    def test_both_columns_count_gpu_hours_over_one_period(
        self, typed: tuple[str, ...], other: str
    ) -> None:
        done = ettr("plan", "--gpus", "64", *RATE, *typed, "--versus", other)
        assert done.code == 0, done.err
        (line,) = (one for one in done.out.splitlines() if one.startswith("GPU-hours held"))
        *words, first, second = line.split()
        hours = [float(one.replace(",", "")) for one in (first, second)]
        if typed:
            assert words[2:] == ["in", "the", "run"]
            assert hours[1] > 64 * 24 * 1e6 > hours[0]
        else:
            assert words[2:] == ["a", "day"]
            assert hours == pytest.approx([64 * 24, 64 * 24], rel=0.01)

    def test_an_option_has_one_value(self) -> None:
        twice = ("--versus", "restart=1min", "--versus", "restart=2min")
        done = ettr("plan", "--gpus", "64", *RATE, *twice)
        assert done.code == 2
        assert "restart already has another value" in " ".join(done.err.split())

    def test_the_rate_goes_by_the_name_of_its_option(self) -> None:
        both = plan("--gpus", "64", *RATE, "--versus", "failures-per-1000-node-days=3")
        assert both["versus"]["plan"]["rate"]["per_node_day"]["estimate"] == pytest.approx(0.003)


class TestFormulas:
    @pytest.mark.parametrize("days", [(), ("--days", "30")])
    def test_their_last_number_is_the_ettr(self, days: tuple[str, ...]) -> None:
        found = plan("--gpus", "16384", *RATE, "--write", "30s", *days, "--explain")
        last = found["answers"]["formulas"][-1]
        assert float(last.split("= ")[-1]) == pytest.approx(found["ettr"]["estimate"], rel=1e-5)

    def test_the_numbers_give_the_ettr(self) -> None:
        import math

        found = plan("--gpus", "16384", *RATE, "--write", "30s", "--queue", "2min", "--explain")
        line = found["answers"]["formulas"][-1]
        share, restart, queue, load = (
            float(text)
            for text in re.search(  # type: ignore[union-attr]
                r"= ([\d.e-]+) × e\^\(−([\d.e-]+)\) / \[\(1 \+ ([\d.e-]+)\) × \(e\^([\d.e-]+) −",
                line,
            ).groups()
        )
        ettr_by_hand = share * math.exp(-restart) / ((1 + queue) * math.expm1(load))
        assert ettr_by_hand == pytest.approx(found["ettr"]["estimate"], rel=1e-4)

    def test_the_first_scheme_has_its_formula_too(self) -> None:
        given = ("--gpus", "4096", *RATE, *JOB, "--queue", "5min", "--explain")
        found = plan(*given, "--failure-shares", "process=0.5,node=0.4,job=0.1")
        head, process, node, job = found["answers"]["formulas"][-4:]
        assert head.startswith(found["schemes"][0]["name"].capitalize())
        assert (process[:7], node[:4], job[:9]) == ("process", "node", "whole job")
        # to first order the numbers in it give its figure, and nearly the exact one
        numbers = re.search(r"= \(1 − (\S+)\) / \[\(1 \+ (\S+)\)\(1 \+ (\S+)\)\] = (\S+);", head)
        assert numbers is not None
        lost, overhead, waited, ettr_ = map(float, numbers.groups())
        assert (1 - lost) / (1 + overhead) / (1 + waited) == pytest.approx(ettr_, abs=2e-4)
        assert ettr_ == pytest.approx(found["schemes"][0]["ettr"]["estimate"], abs=0.003)
        rates = [float(re.search(r"λ = (\S+)", line)[1]) for line in (process, node, job)]  # type: ignore[index]
        assert sum(rates) == pytest.approx(512 * 6.5e-3 / 86400, rel=1e-3)

    def test_nothing_is_printed_unasked(self) -> None:
        assert plan("--gpus", "64", *RATE)["answers"]["formulas"] == []


def test_the_interval_of_a_budget_follows_the_size() -> None:
    budget = TimeBudget(11 * DAY, 0.9)
    found = deadline_plan(RUN, budget).smallest
    assert found is not None
    best = with_best_interval(replace(RUN, n_nodes=found.n_nodes, productive_s=found.productive_s))
    assert found.interval_s == pytest.approx(best.interval_s)
    held = deadline_plan(RUN, replace(budget, keep_interval=True)).smallest
    assert held is not None
    assert held.interval_s == RUN.interval_s


class TestDurablePeriod:
    @staticmethod
    def plan_with(*given: str) -> dict[str, Any]:
        storage = ("--step", "10s", "--bandwidth", "20GB/s", "--host-memory", "10TB")
        return plan("--gpus", "4096", *RATE, *storage, *given)

    def test_it_is_a_whole_number_of_intervals_and_the_plan_says_which(self) -> None:
        # a copy takes 1,000 s at 100 MB/s, so that intervals are long
        slow = ("--state-bytes", "51.2TB", "--device", "100MB/s", "--durable-every", "100min")
        found = self.plan_with(*slow)
        (copies,) = (one for one in found["schemes"] if one["name"] == "in-memory copies")
        intervals = copies["durable_every_s"] / copies["interval_s"]
        assert intervals == pytest.approx(round(intervals)) == round(6000 / copies["interval_s"])
        assert copies["durable_every_s"] != pytest.approx(6000, rel=0.005)
        (note,) = (one for one in found["assumptions"] if one.startswith("--durable-every 1.67 h"))
        assert "whole number of checkpoint intervals" in note
        assert "in-memory copies" in note

    def test_none_overtakes_its_own_write(self) -> None:
        found = self.plan_with("--state-bytes", "100TB", "--durable-every", "1h")
        assert any("a durable checkpoint takes 1.39 h to write" in x for x in found["assumptions"])

    def test_nothing_is_said_where_it_is_as_asked(self) -> None:
        found = self.plan_with("--state-bytes", "1TB", "--durable-every", "1h")
        assert not any("--durable-every" in one for one in found["assumptions"])
        assert {one["name"] for one in found["schemes"] if one["durable_every_s"] is not None} == {
            "in-memory copies",
            "in-memory erasure code",
        }
