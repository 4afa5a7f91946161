"""Questions that a plan answers when asked: cost, time budget, phases, maintenance, formulas."""

from dataclasses import dataclass

from ettr.estimates import Interval
from ettr.plan.cost import Cost, Price, cost_of
from ettr.plan.deadline import DeadlinePlan, TimeBudget, deadline_plan
from ettr.plan.formula import formulas
from ettr.plan.maintenance import Maintained, MaintenancePlan, maintained
from ettr.plan.node_types import NodeType
from ettr.plan.phases import PhasedRun, PhaseLength, phased_run
from ettr.plan.run import PlannedRun


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked of a plan besides its ETTR.

    Attributes:
        price: Of a GPU-hour.
        budget: The time in which the run must end.
        phases: Sizes one after the other; empty for one size.
        maintenance: Planned stops.
        node_types: Of a mixed run; empty for one type.
        formulas: Whether to give the formulas with the numbers in them.
    """

    price: Price | None = None
    budget: TimeBudget | None = None
    phases: tuple[PhaseLength, ...] = ()
    maintenance: MaintenancePlan | None = None
    node_types: tuple[NodeType, ...] = ()
    formulas: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers; None or empty for what was not asked.

    Attributes:
        cost: In GPU-hours, and in money with a price; None where the run makes no progress.
        deadline: To the time budget.
        phases: Of a run that grows or shrinks.
        maintenance: The run with planned stops.
        node_types: Of a mixed run, with their own rates.
        formulas: One a line.
    """

    cost: Cost | None
    deadline: DeadlinePlan | None
    phases: PhasedRun | None
    maintenance: Maintained | None
    node_types: tuple[NodeType, ...]
    formulas: tuple[str, ...]


def answers(run: PlannedRun, ettr: Interval, asked: Questions, *, best_planned: bool) -> Answers:
    """The answers for a run.

    Args:
        run: As planned.
        ettr: Of it, at the rate planned with and at the ends of its interval.
        asked: The questions.
        best_planned: Whether the interval of `run` is the best one.

    Raises:
        UsageError: values that no run can have.
    """
    return Answers(
        cost=cost_of(run, ettr, asked.price),
        deadline=None if asked.budget is None else deadline_plan(run, asked.budget),
        phases=phased_run(run, asked.phases, keep_interval=not best_planned, price=asked.price)
        if asked.phases
        else None,
        maintenance=None if asked.maintenance is None else maintained(run, asked.maintenance),
        node_types=asked.node_types,
        formulas=formulas(run, best_planned=best_planned) if asked.formulas else (),
    )
