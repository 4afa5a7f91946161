"""How pages are rendered: text from a log stays text, in the page and in the data of a script."""

from __future__ import annotations

import base64
import hashlib
import json
import marshal
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from ettr.report.characters import cut, harmless
from ettr.report.text import first_sentence

_NOTHING = ""
"""The text of the style element that Plotly adds, before it puts rules in one by one."""


@cache
def environment() -> Environment:
    """Templates of the report, escaping whatever is not marked as safe; each compiled once."""
    made = Environment(
        loader=PackageLoader("ettr.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        bytecode_cache=_CompiledTemplates(),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["cut"] = cut
    made.filters["code"] = with_code
    made.filters["one_sentence"] = first_sentence
    return made


class _CompiledTemplates(BytecodeCache):
    """Compiled templates next to their sources, as Python keeps its modules."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take what was compiled of this text, if there is any."""
        with suppress(OSError, ValueError, EOFError, TypeError):
            checksum, code = marshal.loads(_compiled(bucket).read_bytes())  # noqa: S302
            if checksum == bucket.checksum:
                bucket.code = code

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep it where the package may be written to."""
        if sys.dont_write_bytecode:
            return
        path = _compiled(bucket)
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True, parents=True)
            new = path.with_suffix(f".{os.getpid()}")
            new.write_bytes(marshal.dumps((bucket.checksum, bucket.code)))
            new.replace(path)


def _compiled(bucket: Bucket) -> Path:
    own = Path(str(resources.files("ettr.report"))) / "templates" / f"{bucket.key}.py"
    return Path(cache_from_source(str(own)))


def script_json(value: object) -> Markup:
    """JSON that is safe inside a script element.

    Raises:
        ValueError: a number is not finite, which JSON has no name for.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for char, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(char, code)
    return Markup(text)  # noqa: S704 - just made safe


def own_file(*names: str) -> Markup:
    """Files of this package one after the other, as text of a script or style element."""
    folder = resources.files("ettr.report")
    text = "\n".join(folder.joinpath(name).read_text("utf-8") for name in names)
    return Markup(text.replace("</script", "<\\/script"))  # noqa: S704 - the package's own file


def content_policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """A content security policy: nothing is loaded, and only these inline texts count.

    A script that came in from a log would not run, as its hash is not listed.

    Source:
        W3C, Content Security Policy Level 3, section 6.7.3.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashes(scripts)}",
            f"style-src {_hashes((*styles, _NOTHING))}",
            "img-src data: blob:",
        )
    )


def _hashes(texts: Iterable[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in texts)
    return " ".join(f"'sha256-{digest.decode()}'" for digest in digests) or "'none'"


def with_code(text: str) -> Markup:
    """Text with what stands between backticks set as code; all of it escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(_visible(text))
    marked = (
        Markup("<code>{}</code>").format(_visible(part)) if place % 2 else escape(_visible(part))
        for place, part in enumerate(parts)
    )
    return Markup("").join(marked)


def _visible(value: object) -> object:
    """What a template prints: text without characters that reverse or hide it."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    # a number and its per cent sign stay on one line
    return harmless(value).replace(" %", "\N{NO-BREAK SPACE}%")
