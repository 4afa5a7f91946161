"""Why attempts ended: end states, events folded into episodes, and the window that joins them."""

from ettr.attribution.chance import (
    CoOccurrence,
    CoOccurrences,
    FalseAttribution,
    SymptomShare,
    co_occurrence,
    false_attribution,
)
from ettr.attribution.endings import endings, interruptions
from ettr.attribution.episodes import episodes, explanatory_segments, observations, segments
from ettr.attribution.failures import failures
from ettr.attribution.job_history import (
    AttemptHistory,
    FailureVerdict,
    JobHistory,
    ObservedEvent,
    explain,
)
from ettr.attribution.pipeline import Attribution, attribute
from ettr.attribution.rules import Confidence, FoldingRules, LogMatching, Window
from ettr.attribution.window import observed

__all__ = [
    "AttemptHistory",
    "Attribution",
    "CoOccurrence",
    "CoOccurrences",
    "Confidence",
    "FailureVerdict",
    "FalseAttribution",
    "FoldingRules",
    "JobHistory",
    "LogMatching",
    "ObservedEvent",
    "SymptomShare",
    "Window",
    "attribute",
    "co_occurrence",
    "endings",
    "episodes",
    "explain",
    "explanatory_segments",
    "failures",
    "false_attribution",
    "interruptions",
    "observations",
    "observed",
    "segments",
]
