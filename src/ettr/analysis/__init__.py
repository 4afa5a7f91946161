"""The only place that knows the order of the stages: a store in, every result of a report out."""

from ettr.analysis.analysis import Analysis, Assumptions

__all__ = ["Analysis", "Assumptions"]
