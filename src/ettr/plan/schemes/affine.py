"""Terms of a scheme as a function of the nodes and the restart time.

The planner page moves both without Python, so it needs the terms of a scheme as numbers. Every
scheme keeps the contract of `ettr.plan.schemes.base.Scheme`, by which three calls give them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ettr.plan.schemes.base import Domain, JobShape, Response, Scheme, Terms, checked

_NO_STEP_S = 1e-12
_LATER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + over_nodes / n_nodes + per_restart_s * restart_s."""

    constant: float
    over_nodes: float
    per_restart_s: float

    def at(self, n_nodes: float, restart_s: float) -> float:
        """The value for so many nodes and such a restart."""
        return self.constant + self.over_nodes / n_nodes + self.per_restart_s * restart_s


@dataclass(frozen=True, slots=True)
class AffineTerms:
    """The terms of a scheme for a job, for any number of nodes and any restart time.

    Attributes:
        fixed: Values that depend on neither.
        stall_s: As in `Terms`.
        lag_s: Likewise.
        durable_stall_s: Likewise.
        durable_lag_s: Likewise.
        shortest_interval_s: Likewise, but for the length of a step, which is the least.
        host_bytes: Likewise.
        restart_s: Of the response to each failure.
        lost_s: Likewise.
        absent_share: Likewise.
    """

    fixed: Terms
    stall_s: Affine
    lag_s: Affine
    durable_stall_s: Affine
    durable_lag_s: Affine
    shortest_interval_s: Affine
    host_bytes: Affine
    restart_s: Mapping[Domain, Affine]
    lost_s: Mapping[Domain, Affine]
    absent_share: Mapping[Domain, Affine]

    def at(self, job: JobShape) -> Terms:
        """The terms for the nodes and the restart time of `job`, all else as it was fitted."""

        def value(of: Affine) -> float:
            return of.at(job.n_nodes, job.restart_s)

        terms = replace(
            self.fixed,
            responses={
                domain: Response(
                    response.level,
                    value(self.restart_s[domain]),
                    value(self.lost_s[domain]),
                    response.lost_staleness_share,
                    response.waits,
                    value(self.absent_share[domain]),
                )
                for domain, response in self.fixed.responses.items()
            },
            stall_s=value(self.stall_s),
            lag_s=value(self.lag_s),
            durable_stall_s=value(self.durable_stall_s),
            durable_lag_s=value(self.durable_lag_s),
            shortest_interval_s=max(job.step_s, value(self.shortest_interval_s)),
            host_bytes=value(self.host_bytes),
        )
        return checked(terms, job)


def affine_terms(scheme: Scheme, job: JobShape) -> AffineTerms:
    """The terms of a scheme for a job, fitted at one node and at two, and at two restart times.

    Args:
        scheme: One that keeps the contract of `Scheme`.
        job: Its nodes and its restart are not used.
    """
    # a step so short that it is never the longer of two
    stepless = replace(job, step_s=_NO_STEP_S)

    def fitted(of: Callable[[Terms], float], base: JobShape = job) -> Affine:
        def at(n_nodes: int, restart_s: float) -> float:
            return of(scheme.terms(replace(base, n_nodes=n_nodes, restart_s=restart_s)))

        one = at(1, 0.0)
        over_nodes = 2.0 * (one - at(2, 0.0))
        return Affine(one - over_nodes, over_nodes, (at(1, _LATER_S) - one) / _LATER_S)

    def of_response(of: Callable[[Response], float], domain: Domain) -> Affine:
        return fitted(lambda terms: of(terms.responses[domain]))

    return AffineTerms(
        fixed=scheme.terms(job),
        stall_s=fitted(lambda terms: terms.stall_s),
        lag_s=fitted(lambda terms: terms.lag_s),
        durable_stall_s=fitted(lambda terms: terms.durable_stall_s),
        durable_lag_s=fitted(lambda terms: terms.durable_lag_s),
        shortest_interval_s=fitted(lambda terms: terms.shortest_interval_s, stepless),
        host_bytes=fitted(lambda terms: terms.host_bytes),
        restart_s={d: of_response(lambda one: one.restart_s, d) for d in Domain},
        lost_s={d: of_response(lambda one: one.lost_s, d) for d in Domain},
        absent_share={d: of_response(lambda one: one.absent_share, d) for d in Domain},
    )
