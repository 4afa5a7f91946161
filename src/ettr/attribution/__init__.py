"""Why attempts ended: end states, events folded into episodes, and the window that joins them."""

from ettr.attribution.rules import Confidence, FoldingRules, LogMatching, Window

__all__ = ["Confidence", "FoldingRules", "LogMatching", "Window"]
