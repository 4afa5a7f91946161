"""Facts of a store: hand-written SQL files that take stored tables to what questions read."""

from ettr.facts import chosen as _chosen  # noqa: F401  # registers its facts
from ettr.facts import opening as _opening  # noqa: F401  # registers its facts
from ettr.facts.facts import Facts, Given
from ettr.facts.files import Fact, fact, fact_names, load_when_unknown, made

__all__ = ["Fact", "Facts", "Given", "fact", "fact_names", "load_when_unknown", "made"]
