"""Figures as files whose bytes follow from the data."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def saved(path: Path, *shape: int, **options: Any) -> Iterator[Any]:
    """Axes of `matplotlib.pyplot.subplots`, written to a file at the end of the block."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": "ettr", "font.size": 9}):
        figure, axes = plt.subplots(*shape, **options)
        yield axes
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
