"""The formula of a checkpoint scheme to first order, with its numbers, next to the exact figure."""

from collections.abc import Mapping

from ettr.plan.ranking import Ranked
from ettr.plan.run import spell
from ettr.plan.schemes import Domain, JobShape
from ettr.plan.schemes.levels_of_terms import levels_of
from ettr.units import SECONDS_PER_DAY


def scheme_formula(
    one: Ranked, job: JobShape, node_per_day: float, shares: Mapping[str, float]
) -> tuple[str, ...]:
    """The formula of a usable scheme, a line for each kind of failure; empty for another.

    Args:
        one: The scheme as ranked.
        job: That it was ranked for.
        node_per_day: Failures of one node per day.
        shares: Of the failures by what they take down.

    **Source**: derived in docs/explanation/checkpoint-schemes.md.
    """
    if not one.usable or one.interval_s is None:
        return ()
    per_s = {
        domain: shares[domain.key] * node_per_day * job.n_nodes / SECONDS_PER_DAY
        for domain in Domain
        if shares.get(domain.key)
    }
    lines, lost, waited = [], 0.0, 0.0
    for domain, rate in per_s.items():
        response = one.terms.responses[domain]
        wait_s = job.queue_s if response.waits else 0.0
        lost_s = one.lost_by_domain_s[domain]
        lost += rate * (response.restart_s + lost_s)
        waited += rate * wait_s
        lines.append(
            f"{domain}: λ = {rate:.4g} per s, u = {spell(response.restart_s)} until it trains, "
            f"ℓ = {spell(lost_s)} of work lost, q = {spell(wait_s)} of waiting"
        )
    at = levels_of(one.terms, job, per_s, one.interval_s)
    overhead = at.length_s / one.interval_s - 1.0
    left = max(0.0, 1.0 - lost)
    return (
        f"{one.scheme.name.capitalize()}, to first order, with o the overhead of saving: ETTR ≈ "
        f"(1 − Σ λ(u + ℓ)) / [(1 + o)(1 + Σ λq)] = (1 − {lost:.4g}) / [(1 + {overhead:.4g})"
        f"(1 + {waited:.4g})] = {left / ((1.0 + overhead) * (1.0 + waited)):.4f}; the exact form, "
        f"which counts failures in recoveries too, gives {one.ettr.estimate or 0.0:.4f}",
        *lines,
    )
