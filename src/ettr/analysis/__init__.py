"""The only place that knows the order of the stages: a store in, every result of a report out."""

from ettr.analysis.analysis import Analysis
from ettr.analysis.assumptions import Assumptions

__all__ = ["Analysis", "Assumptions"]
