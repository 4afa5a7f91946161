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
from ettr.attribution.episodes import blaming, episodes, observations, segments
from ettr.attribution.failures import failures
from ettr.attribution.job_history import AttemptStory, JobStory, Observed, Verdict, explain
from ettr.attribution.pipeline import Attribution, attribute
from ettr.attribution.rules import Confidence, FoldingRules, Naming, Window
from ettr.attribution.window import observed

__all__ = [
    "AttemptStory",
    "Attribution",
    "CoOccurrence",
    "CoOccurrences",
    "Confidence",
    "FalseAttribution",
    "FoldingRules",
    "JobStory",
    "Naming",
    "Observed",
    "SymptomShare",
    "Verdict",
    "Window",
    "attribute",
    "blaming",
    "co_occurrence",
    "endings",
    "episodes",
    "explain",
    "failures",
    "false_attribution",
    "interruptions",
    "observations",
    "observed",
    "segments",
]
