"""PyTorch's JSON at speed: one regular expression for an entry in the layout that it writes.

PyTorch writes keys in order and no spaces. A file that deviates anywhere is left to the parser of
the standard library, which takes three times as long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ettr.flight.entries import CallFields, Entry, Signatures, signature_of

_TEXT = r'"[^"\\\x00-\x1f]{0,200}+"'
_INT = r"(\d{1,19}+)"
# what entries share stands in groups of several fields: most entries differ in numbers alone
_ENTRY = re.compile(
    rf'\{{"collective_seq_id":{_INT},(?:"duration_ms":[\d.e+-]+,)?'
    r'("input_dtypes":\[[^][]*\],"input_sizes":[][\d,]*,"is_p2p":(?:true|false)),"op_id":\d+,'
    rf'("output_dtypes":\[[^][]*\],"output_sizes":[][\d,]*),"p2p_seq_id":{_INT},"pg_id":\d+,'
    rf'("process_group":\[{_TEXT},{_TEXT}\],"profiling_name":{_TEXT}),"record_id":{_INT},'
    rf'("retired":(?:true|false),"state":{_TEXT}),"thread_id":"[^"\\]*","thread_name":"[^"\\]*",'
    rf'"time_created_ns":{_INT},"time_discovered_completed_ns":\d+,'
    rf'"time_discovered_started_ns":\d+,("timeout_ms":\d{{1,19}}+)\}}(,?)'
)
_SHAPES = ("input_dtypes", "input_sizes", "output_dtypes", "output_sizes")
_BEGIN = '"entries":['


def read_layout(
    text: str, signatures: Signatures
) -> tuple[Mapping[str, object], list[Entry]] | None:
    """The record without its entries, and the entries; None where the layout is another.

    A field with a value that PyTorch does not write is another layout, too.
    """
    try:
        return _read_layout(text, signatures)
    except ValueError:
        return None


def _read_layout(
    text: str, signatures: Signatures
) -> tuple[Mapping[str, object], list[Entry]] | None:
    begin = text.find(_BEGIN)
    entries: list[Entry] = []
    place = begin + len(_BEGIN)
    more = begin >= 0
    new, known = tuple.__new__, signatures.of_text
    match = _ENTRY.match
    while more and (matched := match(text, place)):
        seq, inputs, outputs, p2p_seq, names, record_id, state, created, timeout, comma = (
            matched.groups()
        )
        texts = (inputs, outputs, names, state, timeout)
        call = known(texts) or signatures.keep_call(texts, _call_of(texts, signatures))
        group, description, is_p2p, signature, retired, state, timeout_ms = call
        number = int(p2p_seq if is_p2p else seq)
        fields = (
            *(group, description, number, is_p2p, signature, retired, state),
            *(int(created), timeout_ms, int(record_id)),
        )
        # a named tuple's own constructor takes three times as long
        entries.append(new(Entry, fields))
        place, more = matched.end(), comma == ","
    if not entries or more or text[place : place + 1] != "]":
        return None
    head = json.loads(f"{text[:begin]}{_BEGIN}]{text[place + 1 :]}")
    return (head, entries) if isinstance(head, dict) and head.get("entries") == [] else None


def _call_of(texts: tuple[str, ...], signatures: Signatures) -> CallFields:
    """What the fields say that many entries share."""
    shared = json.loads(f"{{{','.join(texts)}}}")
    shapes = (shared[name] for name in _SHAPES)
    signature = signatures.keep(signature_of(shared["profiling_name"], *shapes))
    return (
        *(*shared["process_group"], shared["is_p2p"], signature, shared["retired"]),
        *(shared["state"], shared["timeout_ms"]),
    )
