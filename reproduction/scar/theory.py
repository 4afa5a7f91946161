"""What a lost shard costs in iterations: the arithmetic of perturbed iterative algorithms.

Training is seen as x(k+1) = f(x(k)) with a fixed point x*, and a recovery as a perturbation:
y(k+1) = f(y(k) + δ_k). If f contracts, ‖f(x) − x*‖ ≤ c ‖x − x*‖ with 0 < c < 1, then

    ‖y(k) − x*‖ ≤ c^k (‖x(0) − x*‖ + Δ_T),   Δ_T = Σ_{l ≤ T} c^(−l) ‖δ_l‖     for k > T,

and everything below follows from that line. The setting and the name "iteration cost" are those of
Qiao, Aragam, Zhang and Xing, "Fault Tolerance in Iterative-Convergent Machine Learning" (ICML
2019). Its body was not at hand: **each formula here was derived again from the definitions and
checked by simulation, and none is quoted from the paper.** The derivations, and the trap in the
word κ, are in reproduction/scar/THEORY.md.

NumPy only; nothing here knows what is trained.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ettr.errors import UsageError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Crossing:
    """The iteration at which a trace reaches a threshold, or the end of a trace that never did.

    When `censored`, `iteration` is the last iteration seen: the true one lies beyond it.
    """

    iteration: float
    censored: bool


@dataclass(frozen=True, slots=True)
class IterationCost:
    """Iterations that a perturbation cost: κ(y) − κ(x); a lower bound when `censored`."""

    iterations: float
    perturbed: Crossing
    clean: Crossing

    @property
    def censored(self) -> bool:
        """Whether the perturbed run had not reached the threshold when it ended."""
        return self.perturbed.censored


@dataclass(frozen=True, slots=True)
class Contraction:
    """The rate c of a run that contracts, with its interval and the worst single step.

    `c` is the geometric mean of d(k+1)/d(k) over `steps` steps. The bounds ask for a c that holds
    at *every* step from *every* point: `worst_step` is the largest ratio seen, a lower bound of it.
    """

    c: float
    lower: float
    upper: float
    worst_step: float
    steps: int


def crossing(
    trace: ArrayLike,
    threshold: float,
    *,
    first_iteration: int = 0,
    stays: bool = True,
    logarithmic: bool = False,
) -> Crossing:
    """The iteration at which `trace` comes down to `threshold`, interpolated between iterations.

    Args:
        trace: loss or distance per iteration, shape (iterations,).
        threshold: the level to reach.
        first_iteration: the iteration of `trace[0]`.
        stays: True asks for the iteration after which the trace stays at or below the threshold,
            as κ is defined; False for the first touch, for a run that stops there.
        logarithmic: interpolate log(trace), which is exact for a geometric decay, and under which
            the bounds below hold for the interpolated κ too. Needs a positive trace.

    Raises:
        UsageError: the trace is empty or not one-dimensional, or not positive though the
            interpolation is logarithmic.
    """
    values = np.asarray(trace, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise UsageError(
            f"trace has shape {values.shape}; give one number per iteration, at least one"
        )
    above = ~(values <= threshold)  # a nan is not below anything
    if stays:
        if above[-1]:
            return Crossing(float(first_iteration + values.size - 1), censored=True)
        index = int(np.flatnonzero(above)[-1]) + 1 if above.any() else 0
    else:
        if above.all():
            return Crossing(float(first_iteration + values.size - 1), censored=True)
        index = int(np.flatnonzero(~above)[0])
    if index == 0:
        return Crossing(float(first_iteration), censored=False)
    before, after = float(values[index - 1]), float(values[index])
    if logarithmic:
        if after <= 0 or threshold <= 0:
            raise UsageError(
                f"a logarithmic crossing needs a positive trace and threshold; got {after:g} and "
                f"{threshold:g}: subtract the best loss, or leave `logarithmic` off"
            )
        before, after, level = math.log(before), math.log(after), math.log(threshold)
    else:
        level = threshold
    part = (before - level) / (before - after) if math.isfinite(before) else 1.0
    return Crossing(first_iteration + index - 1 + part, censored=False)


def iteration_cost(
    perturbed: ArrayLike,
    clean: ArrayLike,
    threshold: float,
    *,
    first_iteration: int = 0,
    stays: bool = True,
    logarithmic: bool = False,
) -> IterationCost:
    """The iterations that `perturbed` needs beyond `clean` to reach the same threshold.

    Args:
        perturbed: loss or distance per iteration of the run that was disturbed.
        clean: the same of the run that was not, from iteration 0.
        threshold: the level both must reach.
        first_iteration: the iteration of `perturbed[0]`, if that trace starts at the failure.
        stays: see `crossing`.
        logarithmic: see `crossing`.

    Raises:
        UsageError: the clean run never reaches the threshold, so there is nothing to compare to.

    Source:
        ι = κ(y, ε) − κ(x, ε), the definition used with the SCAR paper; from memory, not verified.
    """
    reference = crossing(clean, threshold, stays=stays, logarithmic=logarithmic)
    if reference.censored:
        raise UsageError(
            f"the clean run ends above the threshold {threshold:g}; run it longer, or take its own "
            "loss at a late iteration as the threshold"
        )
    found = crossing(
        perturbed,
        threshold,
        first_iteration=first_iteration,
        stays=stays,
        logarithmic=logarithmic,
    )
    return IterationCost(found.iteration - reference.iteration, found, reference)


def discounted_perturbation(norms: Sequence[float], c: float) -> float:
    """Δ_T = Σ_l c^(−l) ‖δ_l‖: every perturbation as if it had come at iteration 0.

    A late perturbation weighs more, since fewer iterations are left to shrink it.

    Args:
        norms: ‖δ_l‖ for l = 0, 1, …, T; zeros where nothing happened.
        c: contraction rate, 0 < c < 1.

    Source:
        Derived again from the contraction; as remembered of the SCAR paper, not verified.
    """
    _check_rate(c)
    return float(sum(_norm(norm) * c ** (-at) for at, norm in enumerate(norms)))


def worst_case_count(initial_distance: float, epsilon: float, c: float) -> float:
    """The iterations after which a c-contraction is surely within `epsilon`: log(d/ε)/log(1/c).

    It is 0 if the start is already inside. A real run may need fewer: this is the worst case.

    Source:
        c^k d ≤ ε solved for k.
    """
    _check_rate(c)
    _check_positive("initial_distance", initial_distance)
    _check_positive("epsilon", epsilon)
    return max(0.0, math.log(initial_distance / epsilon) / -math.log(c))


def worst_case_cost(norms: Sequence[float], initial_distance: float, c: float) -> float:
    """The bound ι ≤ log(1 + Δ_T / ‖x(0) − x*‖) / log(1/c), against the *worst-case* clean count.

    **The trap.** It bounds κ(y) − `worst_case_count(...)`, not κ(y) − κ(x) of a real run: where the
    clean run contracts faster than c, as most do at first, the real difference may exceed it.
    `anchored_count` has no such trap.

    Args:
        norms: ‖δ_l‖ for l = 0, 1, …, T, and nothing after T.
        initial_distance: ‖x(0) − x*‖.
        c: contraction rate, 0 < c < 1.

    Source:
        Derived again from the contraction; as remembered of the SCAR paper, not verified.
    """
    _check_positive("initial_distance", initial_distance)
    return math.log1p(discounted_perturbation(norms, c) / initial_distance) / -math.log(c)


def anchored_count(
    at_iteration: int, distance: float, perturbation: float, epsilon: float, c: float
) -> float:
    """The tight bound on κ(y): T + log((‖x(T) − x*‖ + ‖δ_T‖)/ε) / log(1/c).

    It starts from where the run really was when it was disturbed, so the speed of the clean run
    before T is not thrown away. It bounds κ(y) itself.

    Args:
        at_iteration: T, the iteration of the one perturbation.
        distance: ‖x(T) − x*‖ just before it.
        perturbation: ‖δ_T‖.
        epsilon: the distance to reach.
        c: contraction rate, 0 < c < 1.

    Source:
        Derived here: the contraction from y(T) = x(T) + δ_T on.
    """
    start = distance + _norm(perturbation)
    return at_iteration + worst_case_count(start, epsilon, c)


def anchored_cost(distance: float, perturbation: float, c: float) -> float:
    """What one perturbation at T costs at most beyond the worst case from T on, in iterations.

    log(1 + ‖δ_T‖/‖x(T) − x*‖) / log(1/c): the price to compare with a rollback. Only the relative
    size counts, so the same ‖δ‖ costs more late in training.

    Source:
        Derived here: `anchored_count` with and without the perturbation.
    """
    _check_rate(c)
    _check_positive("distance", distance)
    return math.log1p(_norm(perturbation) / distance) / -math.log(c)


def error_floor(perturbation: float, c: float) -> float:
    """c D / (1 − c): the distance under which a run disturbed at every iteration need not come.

    Args:
        perturbation: D, with E‖δ_k‖ ≤ D for all k.
        c: contraction rate, 0 < c < 1.

    Source:
        Derived again: the fixed point of e = c (e + D). If E‖δ_k‖ → 0 the floor goes with it.
    """
    _check_rate(c)
    return c * _norm(perturbation) / (1 - c)


def expected_squared_perturbation(full_squared: float, lost_fraction: float) -> float:
    """E‖δ'‖² = p ‖δ‖²: the perturbation left if only a random lost fraction p is restored.

    Exact for a lost set of p·n units drawn without replacement, whatever the units' sizes, since
    each unit is lost with probability p. It says nothing of a lost set that is not random.

    Args:
        full_squared: ‖δ‖² of restoring everything.
        lost_fraction: p, from 0 to 1.

    Source:
        Derived again: linearity of expectation; as remembered of the SCAR paper, not verified.
    """
    if not 0 <= lost_fraction <= 1:
        raise UsageError(f"lost_fraction is {lost_fraction:g}; it must lie in 0 to 1")
    return lost_fraction * _norm(full_squared)


def run(
    step: Callable[[Array], ArrayLike],
    start: ArrayLike,
    iterations: int,
    *,
    perturb: Callable[[int, Array], ArrayLike] | None = None,
) -> Array:
    """The states y(0), …, y(iterations) of y(k+1) = step(y(k) + δ_k), shape (iterations + 1, …).

    Args:
        step: f, one iteration of the algorithm on a NumPy array.
        start: y(0).
        iterations: how many steps to take.
        perturb: δ_k from (k, y(k)); None for the clean run.
    """
    state = np.asarray(start, dtype=np.float64)
    states = [state]
    for at in range(iterations):
        given = state if perturb is None else state + np.asarray(perturb(at, state))
        state = np.asarray(step(given), dtype=np.float64)
        states.append(state)
    return np.stack(states)


def distances(states: ArrayLike, fixed_point: ArrayLike) -> Array:
    """‖x(k) − x*‖ per iteration, shape (iterations,); `states` as `run` returns them."""
    gap = np.asarray(states, dtype=np.float64) - np.asarray(fixed_point, dtype=np.float64)
    return np.asarray(np.linalg.norm(gap.reshape(gap.shape[0], -1), axis=1))


def distances_from_losses(losses: ArrayLike, best_loss: float, *, order: float = 2.0) -> Array:
    """Distances up to a constant, from losses: (loss − best)^(1/order).

    Near a smooth minimum the loss gap grows with the square of the distance (order 2). The constant
    drops out of c. `best_loss` must be a loss the run stays above; one that is too high makes c too
    small near the end.

    Raises:
        UsageError: some loss is not above `best_loss`.
    """
    gap = np.asarray(losses, dtype=np.float64) - best_loss
    if not (gap > 0).all():
        raise UsageError(
            f"{int((~(gap > 0)).sum())} of {gap.size} losses are not above best_loss "
            f"{best_loss:g}; cut the trace, or give the loss of a longer run"
        )
    return np.asarray(gap ** (1 / order))


def estimate_contraction(
    distance: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    block: int | None = None,
) -> Contraction:
    """The contraction rate c of one clean run, with a moving-block bootstrap interval.

    Successive steps are alike, so whole blocks of steps are drawn again. The interval is about the
    mean rate of *this* stretch; it is no interval for the c of the bounds, which is a maximum.

    Args:
        distance: ‖x(k) − x*‖ per iteration, or anything proportional to it (see
            `distances_from_losses`); at least 9 values, all positive.
        rng: source of the resamples.
        confidence: of the two-sided interval.
        resamples: bootstrap draws.
        block: steps per block; the cube root of the number of steps if None.

    Raises:
        UsageError: too few distances, or some not positive and finite.

    Source:
        Künsch (1989), Annals of Statistics 17: the moving-block bootstrap.
    """
    values = np.asarray(distance, dtype=np.float64)
    if values.ndim != 1 or values.size < 9:
        raise UsageError(f"c needs at least 9 distances in one row; got shape {values.shape}")
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise UsageError("every distance must be positive and finite; cut the trace before 0")
    ratios = np.diff(np.log(values))
    steps = ratios.size
    length = max(1, round(steps ** (1 / 3))) if block is None else block
    if not 1 <= length <= steps:
        raise UsageError(f"block is {length}; it must lie in 1 to {steps}, the number of steps")
    sums = np.convolve(ratios, np.ones(length), mode="valid")
    per_draw = math.ceil(steps / length)
    drawn = rng.integers(0, sums.size, size=(resamples, per_draw))
    means = sums[drawn].sum(axis=1) / (per_draw * length)
    tail = (1 - confidence) / 2
    lower, upper = np.exp(np.quantile(means, [tail, 1 - tail]))
    return Contraction(
        float(np.exp(ratios.mean())),
        float(lower),
        float(upper),
        float(np.exp(ratios.max())),
        steps,
    )


def _check_rate(c: float) -> None:
    if not 0 < c < 1:
        raise UsageError(
            f"c is {c:g}; a contraction has 0 < c < 1. A run that does not contract has no bound"
        )


def _check_positive(name: str, value: float) -> None:
    if not value > 0 or not math.isfinite(value):
        raise UsageError(f"{name} is {value:g}; it must be positive and finite")


def _norm(value: float) -> float:
    if not value >= 0:
        raise UsageError(f"a perturbation of {value:g}; a norm is 0 or more")
    return float(value)
