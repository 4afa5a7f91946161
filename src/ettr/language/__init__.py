"""Queries of language models: how likely a model writes what a regular expression matches.

`ByteAutomaton` reads the expression, `TokenWalks` walks a vocabulary through it, `search` bounds
the probability and lists matches in exact order, `sampled` estimates it.
"""

from ettr.language.automaton import ByteAutomaton, TokenWalks
from ettr.language.models import LanguageModel, ModelScores, loaded_model
from ettr.language.search import Match, Query, QueryAnswer, Sampled, sampled, search

__all__ = [
    "ByteAutomaton",
    "LanguageModel",
    "Match",
    "ModelScores",
    "Query",
    "QueryAnswer",
    "Sampled",
    "TokenWalks",
    "loaded_model",
    "sampled",
    "search",
]
