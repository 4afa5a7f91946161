"""Arrow tables as data frames of libraries that ettr does not bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ettr.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """The table as a pandas data frame.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas  # noqa: F401 - Arrow's own complaint names an internal
    except ModuleNotFoundError:
        raise UsageError(
            "pandas is not installed: `pip install pandas`, or use to_pyarrow or to_polars"
        ) from None
    return cast("pd.DataFrame", table.to_pandas())


def polars_frame(table: pa.Table) -> pl.DataFrame:
    """The table as a polars data frame.

    Raises:
        UsageError: polars is not installed.
    """
    try:
        import polars
    except ModuleNotFoundError:
        raise UsageError(
            "polars is not installed: `pip install polars`, or use to_pandas or to_pyarrow"
        ) from None
    made = polars.from_arrow(table)
    return made if isinstance(made, polars.DataFrame) else made.to_frame()
