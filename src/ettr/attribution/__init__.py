"""Why attempts ended: end states, events folded into episodes, and the window that joins them."""

from ettr.attribution.endings import endings, interruptions
from ettr.attribution.episodes import blaming, episodes, observations, segments
from ettr.attribution.failures import failures
from ettr.attribution.pipeline import Attribution, attribute
from ettr.attribution.rules import Confidence, FoldingRules, Naming, Window
from ettr.attribution.window import observed

__all__ = [
    "Attribution",
    "Confidence",
    "FoldingRules",
    "Naming",
    "Window",
    "attribute",
    "blaming",
    "endings",
    "episodes",
    "failures",
    "interruptions",
    "observations",
    "observed",
    "segments",
]
