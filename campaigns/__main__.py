"""Run a campaign whole and keep its table: `python -m campaigns NAME`, or `make campaign NAME`."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from campaigns import NAMES, Table

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "campaigns"


def main(words: list[str]) -> int:
    """Run the campaign of that name, and the one that goes with it; exit 2 where there is none."""
    if len(words) != 1 or words[0] not in NAMES:
        print(f"give one campaign: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"campaigns.{words[0].replace('-', '_')}")
    table = module.run(module.SIZE)
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_rows(RESULTS / f"{words[0]}.csv", [table.headers, *table.rows])
    keep_in_index(words[0], module.TITLE, str(module.SIZE), table)
    print(
        f"{module.TITLE}\n\nAsked: {table.asked}\n\n{table.markdown()}\n\n{table.verdict}".rstrip()
    )
    then = getattr(module, "THEN", None)
    return main([then]) if then else 0


def write_rows(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write rows as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def keep_in_index(name: str, title: str, size: str, table: Table) -> None:
    """Put what was asked of a campaign, and its verdict, in place of its row of the index."""
    path = RESULTS / "index.csv"
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    row = [name, title, table.asked, size, table.seeds, table.verdict]
    write_rows(path, [head, *sorted([row, *(other for other in rows if other[0] != name)])])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
