"""Terms of a scheme as a function of the nodes and the restart time.

The planner page moves both without Python, so it needs the terms of a scheme as numbers. Every
scheme keeps the contract of `ettr.plan.schemes.base.Scheme`, by which three calls give them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ettr.plan.schemes.base import Domain, JobShape, Response, Scheme, Terms

_NO_STEP_S = 1e-12
_ALL_MEMORY_BYTES = 1e30
_NO_MEMORY_BYTES = 1e-9
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
        fixed: Values that depend on neither, from the terms for unlimited memory.
        needs_memory: Whether the scheme cannot be used where `host_bytes` exceed those of a node.
        stall_s: As in `Terms`.
        lag_s: Likewise.
        shortest_interval_s: Likewise, but for the length of a step, which is the least.
        host_bytes: Likewise.
        restart_s: Of the response to each failure.
        lost_s: Likewise.
    """

    fixed: Terms
    needs_memory: bool
    stall_s: Affine
    lag_s: Affine
    shortest_interval_s: Affine
    host_bytes: Affine
    restart_s: Mapping[Domain, Affine]
    lost_s: Mapping[Domain, Affine]

    def at(self, job: JobShape) -> Terms:
        """The terms for the nodes and the restart time of `job`, all else as it was fitted."""

        def value(of: Affine) -> float:
            return of.at(job.n_nodes, job.restart_s)

        host_bytes = value(self.host_bytes)
        too_large = self.needs_memory and host_bytes > job.host_bytes
        return replace(
            self.fixed,
            responses={
                domain: Response(
                    response.level,
                    value(self.restart_s[domain]),
                    value(self.lost_s[domain]),
                    response.lost_interval_share,
                )
                for domain, response in self.fixed.responses.items()
            },
            stall_s=value(self.stall_s),
            lag_s=value(self.lag_s),
            shortest_interval_s=max(job.step_s, value(self.shortest_interval_s)),
            host_bytes=host_bytes,
            obstacle="memory" if too_large else self.fixed.obstacle,
        )


def affine_terms(scheme: Scheme, job: JobShape) -> AffineTerms:
    """The terms of a scheme for a job, fitted at one node and at two, and at two restart times.

    Args:
        scheme: One that keeps the contract of `Scheme`.
        job: Its nodes and its restart are not used.
    """
    roomy = replace(job, host_bytes=_ALL_MEMORY_BYTES)
    # a step so short that it is never the longer of two
    stepless = replace(roomy, step_s=_NO_STEP_S)
    fixed = scheme.terms(stepless)
    tight = scheme.terms(replace(stepless, host_bytes=_NO_MEMORY_BYTES))

    def fitted(base: JobShape, of: Callable[[Terms], float]) -> Affine:
        def at(n_nodes: int, restart_s: float) -> float:
            return of(scheme.terms(replace(base, n_nodes=n_nodes, restart_s=restart_s)))

        one = at(1, 0.0)
        over_nodes = 2.0 * (one - at(2, 0.0))
        return Affine(one - over_nodes, over_nodes, (at(1, _LATER_S) - one) / _LATER_S)

    def restart_s(domain: Domain) -> Affine:
        return fitted(stepless, lambda terms: terms.responses[domain].restart_s)

    def lost_s(domain: Domain) -> Affine:
        # the step that is repeated has its length
        return fitted(roomy, lambda terms: terms.responses[domain].lost_s)

    return AffineTerms(
        fixed=fixed,
        needs_memory=fixed.obstacle is None and tight.obstacle is not None,
        stall_s=fitted(stepless, lambda terms: terms.stall_s),
        lag_s=fitted(stepless, lambda terms: terms.lag_s),
        shortest_interval_s=fitted(stepless, lambda terms: terms.shortest_interval_s),
        host_bytes=fitted(stepless, lambda terms: terms.host_bytes),
        restart_s={domain: restart_s(domain) for domain in Domain},
        lost_s={domain: lost_s(domain) for domain in Domain},
    )
