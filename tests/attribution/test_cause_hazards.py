"""Ages and days in the ledger of causes: what ends late or on a bad day has another cause."""

import numpy as np
import pytest

from ettr.attribution.hazards import (
    BY_OPERATOR,
    CAUSES,
    FAILED,
    NODE_FAILED,
    CauseDomain,
    Interruptions,
    RunAges,
    ends_by_age,
    evidence_table,
    rates_without_own,
)
from ettr.attribution.ledger import fit_ledger
from ettr.taxonomy import load_taxonomy

NODE, SYSTEM, USER, OPERATOR = (
    CAUSES.index(one)
    for one in (CauseDomain.NODE, CauseDomain.SYSTEM, CauseDomain.USER, CauseDomain.OPERATOR)
)


def _probabilities(given: Interruptions) -> np.ndarray:
    prior = evidence_table(given.kinds, load_taxonomy().symptoms, has_checks=False)
    return fit_ledger(given, prior).probability


def test_a_steady_hazard_has_its_rate_at_every_age():
    """Of lognormal runs 0.3 a day end by a steady hazard; chance per run times factor over age."""
    rng = np.random.default_rng(1)
    planned, fault = rng.lognormal(-1.0, 1.0, 200_000), rng.exponential(1 / 0.3, 200_000)
    ran, hit = np.minimum(planned, fault), fault < planned
    ages = RunAges.of(ran[hit], np.ones(hit.sum(), np.bool_), ends_by_age(ran))
    rate = hit.mean() * ages.factors(np.ones(hit.sum())) / ran[hit]
    usual = (ran[hit] > 0.05) & (ran[hit] < 2.0)
    assert np.mean(rate[usual]) == pytest.approx(0.3, rel=0.1)
    assert np.percentile(rate[usual], [5, 95]) == pytest.approx(0.3, rel=0.5)


def test_without_ages_no_age_is_likelier():
    ran = np.array([0.01, 1.0])
    nobody = RunAges.of(ran, np.ones(2, np.bool_), None)
    assert nobody.factors(np.ones(2)).tolist() == [1.0, 1.0]
    one = RunAges.of(ran, np.array([True, False]), ends_by_age(ran))
    assert one.usual_factors()[1] == 1.0


def _ends(evidence: list[str], **changed: object) -> Interruptions:
    """Ends of one program and user each, on one node each, one a day, among 50 runs of each."""
    n = len(evidence)
    kinds = sorted(set(evidence))
    made: dict[str, object] = {
        "evidence": np.array([kinds.index(one) for one in evidence]),
        "kinds": tuple(kinds),
        "program": np.arange(n),
        "user": np.arange(n),
        "program_runs": np.full(n, 50.0),
        "pair_of": np.arange(n),
        "pair_node": np.arange(n),
        "pair_days": np.full(n, 0.2),
        "pair_named": np.zeros(n, dtype=np.bool_),
        "node_days": np.full(n, 20.0),
        "node_runs": np.full(n, 50.0),
        "burst_odds": np.zeros((2, n)),
        "day": np.arange(n),
        "days": n,
    }
    return Interruptions(**{**made, **changed})  # type: ignore[arg-type]


def test_an_end_at_an_age_at_which_no_program_crashes_is_rather_the_node():
    """Eighty crashes after some minutes; one attempt fails after two days, as late as most end."""
    ran = np.append(np.full(80, 0.005), 2.0)
    given = _ends(
        [FAILED] * 81,
        pair_days=ran,
        ended=ends_by_age(np.append(ran, np.full(4000, 2.0))),
    )
    probability = _probabilities(given)
    assert probability[:80, USER].min() > 0.95
    assert probability[80, NODE] > 10 * probability[:80, NODE].max()


def _on_64_nodes(day: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Probability of system software where ends without symptoms lie on nodes by chance."""
    given = _ends(
        [NODE_FAILED] * len(day),
        pair_node=rng.integers(0, 64, len(day)),
        node_days=np.full(64, 100.0),
        node_runs=np.full(64, 250.0),
        day=day,
        days=60,
    )
    return _probabilities(given)[:, SYSTEM]


def test_days_alike_without_logs_are_no_bad_software_and_three_bad_days_are():
    rng = np.random.default_rng(2)
    day = np.repeat(np.arange(60), rng.poisson(6.0, 60))
    assert _on_64_nodes(day, rng).sum() < 0.2 * len(day)
    bad = np.append(day, np.repeat([7, 29, 41], 30))
    found = _on_64_nodes(bad, rng)
    of_bad = np.isin(bad, [7, 29, 41])
    assert found[of_bad].mean() > 0.5
    assert found[~of_bad].mean() < 0.1


def test_many_doubtful_ends_are_no_rate_of_software():
    """Ten ends a day on 60 days, each at odds of 1 to 20 at the rate that they are stated at."""
    day = np.repeat(np.arange(60), 10)
    per_rate, weight = np.full(600, 0.05 / (0.1 * 600 / 1000.0)), np.ones(600)
    rates = rates_without_own(per_rate, weight, day, 60, 1000.0)
    # at its stated rate it would have ended a tenth of them
    assert rates.max() * 1000.0 < 0.02 * 600
    bad = per_rate.copy()
    bad[day == 9] *= 1000
    rates = rates_without_own(bad, weight, day, 60, 1000.0)
    assert rates[day == 9].min() > 20 * rates[day != 9].max()
    # ten jobs of one user count for less
    weight[day == 9] = 0.2
    assert (rates_without_own(bad, weight, day, 60, 1000.0)[day == 9] < rates[day == 9]).all()


def test_a_cancel_by_an_operator_on_a_bad_node_is_the_operators():
    """Thirty failures of as many users on one node, and an operator's act there and on ten more."""
    given = _ends(
        [*[NODE_FAILED] * 30, *[BY_OPERATOR] * 11],
        pair_node=np.append(np.zeros(31, dtype=np.int64), np.arange(1, 11)),
        node_days=np.append(20.0, np.full(40, 50.0)),
        node_runs=np.full(41, 50.0),
    )
    assert _probabilities(given)[30, OPERATOR] > 0.97
