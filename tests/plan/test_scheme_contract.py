"""Every registered scheme keeps the contract that the planner page relies on."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.plan.schemes import SCHEMES, Domain, JobShape, Scheme, Synchronous, Terms, terms_for
from ettr.plan.schemes.base import affine_terms

SHARES = st.floats(0.01, 1.0)
JOBS = st.builds(
    JobShape,
    n_nodes=st.integers(1, 20_000),
    restart_s=st.floats(0.0, 7200.0),
    queue_s=st.floats(0.0, 3600.0),
    state_bytes=st.floats(1e9, 1e14),
    step_s=st.floats(0.01, 600.0),
    storage_bytes_per_s=st.floats(1e8, 1e13),
    network_bytes_per_s=st.floats(1e8, 1e12),
    device_bytes_per_s=st.floats(1e9, 1e12),
    host_bytes=st.floats(1e9, 1e13),
    replace_s=st.floats(0.0, 3600.0),
    replicas=st.integers(1, 8),
    one_writer_share=SHARES,
    durable_period_s=st.floats(60.0, 86400.0),
    embedding_share=SHARES,
    expert_share=SHARES,
    logged_bytes_per_step=st.floats(0.0, 1e12),
)


def times(terms: Terms) -> dict[str, float]:
    """What the page computes as a number."""
    found = {
        "stall_s": terms.stall_s,
        "lag_s": terms.lag_s,
        "durable_stall_s": terms.durable_stall_s,
        "durable_lag_s": terms.durable_lag_s,
        "shortest_interval_s": terms.shortest_interval_s,
        "host_bytes": terms.host_bytes,
    }
    for domain, response in terms.responses.items():
        found[f"restart_s of {domain}"] = response.restart_s
        found[f"lost_s of {domain}"] = response.lost_s
        found[f"absent_share of {domain}"] = response.absent_share
    return found


def choices(terms: Terms) -> dict[str, object]:
    """What may depend on neither nodes nor restart, memory aside."""
    found: dict[str, object] = {
        "slowdown": terms.slowdown,
        "two_levels": terms.two_levels,
        "durable_period_s": terms.durable_period_s,
        "storage_bytes": terms.storage_bytes,
        "usable": terms.obstacle is None,
    }
    for domain, response in terms.responses.items():
        found[f"level of {domain}"] = response.level
        found[f"lost_staleness_share of {domain}"] = response.lost_staleness_share
        found[f"waits of {domain}"] = response.waits
    return found


def departures(scheme: Scheme, job: JobShape, elsewhere: Iterable[JobShape]) -> list[str]:
    """Where a scheme's own terms differ from those fitted to it at one node and two."""
    fitted = affine_terms(scheme, job)
    # the numbers at one node: what cancels in a fit is as small as these are exact
    size = times(terms_for(scheme, replace(job, n_nodes=1, restart_s=3600.0)))
    found = []
    for other in elsewhere:
        own, page = terms_for(scheme, other), fitted.at(other)
        found += [
            f"{name} at {other.n_nodes} nodes: {value}, on the page {times(page)[name]}"
            for name, value in times(own).items()
            if not math.isclose(value, times(page)[name], rel_tol=1e-9, abs_tol=1e-12 * size[name])
        ]
        if choices(own) != choices(page):
            found.append(f"{choices(own)} at {other.n_nodes} nodes, on the page {choices(page)}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@given(
    job=JOBS,
    n_nodes=st.lists(st.integers(1, 40_000), min_size=1, max_size=4),
    restart_s=st.floats(0.0, 7200.0),
)
def test_a_scheme_keeps_the_contract(
    scheme: Scheme, job: JobShape, n_nodes: list[int], restart_s: float
) -> None:
    elsewhere = [replace(job, n_nodes=n, restart_s=restart_s) for n in n_nodes]
    assert departures(scheme, job, elsewhere) == []


JOB = JobShape(n_nodes=64, state_bytes=1e12, step_s=10.0, storage_bytes_per_s=100e9)
ELSEWHERE = [replace(JOB, n_nodes=n, restart_s=s) for n in (1, 3, 500) for s in (60.0, 900.0)]


@dataclass(frozen=True)
class Tree(Synchronous):
    """Gathers over a tree of nodes: its stall grows with their logarithm."""

    def terms(self, job: JobShape) -> Terms:
        terms = super().terms(job)
        return replace(terms, stall_s=terms.stall_s + math.log2(job.n_nodes))


@dataclass(frozen=True)
class SlowWithSize(Synchronous):
    """Slows training in proportion to the nodes."""

    def terms(self, job: JobShape) -> Terms:
        return replace(super().terms(job), slowdown=1e-4 * job.n_nodes)


@dataclass(frozen=True)
class SmallOnly(Synchronous):
    """Cannot be used beyond a number of nodes, whatever their memory."""

    def terms(self, job: JobShape) -> Terms:
        obstacle = "too many nodes" if job.n_nodes > 100 else None
        return replace(super().terms(job), obstacle=obstacle)


@dataclass(frozen=True)
class Patient(Synchronous):
    """Saves no more often than it restarts."""

    def terms(self, job: JobShape) -> Terms:
        terms = super().terms(job)
        return replace(terms, shortest_interval_s=max(120.0, job.restart_s))


@pytest.mark.parametrize("scheme", [Tree(), SlowWithSize(), SmallOnly(), Patient()])
def test_a_scheme_that_breaks_it_is_found(scheme: Scheme) -> None:
    assert departures(scheme, JOB, ELSEWHERE) != []
    assert departures(Synchronous(), JOB, ELSEWHERE) == []


def test_the_page_knows_every_number_of_the_terms() -> None:
    """A new field of `Terms` or `Response` reaches the page, or is none that ETTR depends on."""
    known = {"responses", "quality", "memory_remedy", "min_nodes", "obstacle"}
    known |= set(choices(Synchronous().terms(JOB))) & {field.name for field in fields(Terms)}
    terms = Synchronous().terms(JOB)
    assert {field.name for field in fields(Terms)} == known | {
        name for name in times(terms) if " of " not in name
    }
    of_response = {"level", "restart_s", "lost_s", "lost_staleness_share", "waits", "absent_share"}
    assert {field.name for field in fields(terms.responses[Domain.NODE])} == of_response
