"""A note of the site on its own logs: text that the report shows above its first number.

Format: the first line is `# ettr note`; the others are the text, as one paragraph. Lines that
begin with `#` are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import first_texts, numbered_texts
from ettr.sources.origin import Origin
from ettr.tables.rows import SITE_NOTE, Batch

MOST_CHARACTERS = 2000
_FIRST = re.compile(r"#\s*ettr note\s*$", re.IGNORECASE)


def matches(head: bytes, file_name: str) -> float:
    """1 where the first line says so."""
    texts = first_texts(head, 1)
    return 1.0 if texts and _FIRST.match(texts[0]) else 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One batch without rows, whose note is the text.

    Raises:
        SourceError: the first line is another one, there is no text, or it is too long.
    """
    del options  # a note has no times and no nodes
    lines = [text.strip() for _, text in numbered_texts(origin)]
    if not lines or not _FIRST.match(lines[0]):
        raise SourceError(f"{origin}: the first line of a note is '# ettr note'")
    text = " ".join(line for line in lines if line and not line.startswith("#"))
    if not text:
        raise SourceError(f"{origin}: holds no text below its first line")
    if len(text) > MOST_CHARACTERS:
        raise SourceError(
            f"{origin}: has {len(text):,} characters; a note has {MOST_CHARACTERS:,} at most"
        )
    yield Batch({}, rows_read=len(lines), rows_skipped=len(lines), notes=(text,))


SOURCE = Source(
    name=SITE_NOTE,
    title="A note of the site, shown above the report's first number",
    tables=(),
    matches=matches,
    read=read,
    how_to_get="printf '# ettr note\\nNodes 1 to 8 were re-cabled on 3 May.\\n' > note.txt",
)
