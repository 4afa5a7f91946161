"""The taxonomy's own data files, read from the package."""

import csv
from importlib import resources


def read_records(name: str) -> list[dict[str, str]]:
    """The rows of `data/<name>.csv` as dictionaries of stripped text, in file order."""
    file = resources.files("ettr.taxonomy").joinpath("data", f"{name}.csv")
    lines = file.read_text(encoding="utf-8").splitlines()
    return [
        {key: (value or "").strip() for key, value in row.items()} for row in csv.DictReader(lines)
    ]


def truth(text: str) -> bool:
    """Whether a yes/no cell says yes."""
    return text == "yes"
