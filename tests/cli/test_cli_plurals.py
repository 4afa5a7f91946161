"""One of a kind is printed in the singular, in the report, below it, and in what ingest notes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.words import by_number, counted
from source_samples import Sample, samples

NOUNS = (
    "attempts|clusters|days|episodes|errors|events|failures|faults|files|GPUs|headers|hours|jobs|"
    "lines|minutes|nodes|outages|records|rows|runs|steps|stamps|texts|values|windows"
)
PLURAL_OF_ONE = re.compile(rf"(?<![\w.,=/:-])1 (?:job |local |repeated |unplanned )?(?:{NOUNS})\b")
EXAMPLE = Path(__file__).parents[1] / "data" / "bad_morning"


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (0, "0 job steps are folded into their jobs"),
        (1, "1 job step is folded into its job"),
        (12_345, "12,345 job steps are folded into their jobs"),
    ],
)
def test_a_sentence_by_number(count: int, sentence: str) -> None:
    template = "{n} job [step is folded into its job|steps are folded into their jobs]"
    assert by_number(template, count) == sentence
    assert sentence.startswith(counted(count, "job step"))


def test_what_the_pattern_finds() -> None:
    for wrong in ("On 1 nodes the", "1 job steps are", "of 1 attempts"):
        assert PLURAL_OF_ONE.search(wrong)
    for right in ("1 node", "0.1 days", "11 nodes", "n-1 nodes", "1 to 8 nodes"):
        assert not PLURAL_OF_ONE.search(right)


@pytest.mark.parametrize("sample", samples(), ids=str)
def test_notes_of_the_sources(sample: Sample) -> None:
    batches = sample.read()
    notes = [note for batch in batches for note in batch.notes]
    notes += [by_number(note, n) for batch in batches for note, n in batch.counted_notes.items()]
    assert not [note for note in notes if PLURAL_OF_ONE.search(note)]
    # every form was chosen: no template is printed
    assert not [note for note in notes if re.search(r"\[[^]]*\|[^]]*\]|\{n\}", note)]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("plurals") / "store"
    files = sorted(path for path in EXAMPLE.iterdir() if path.suffix in {".psv", ".log"})
    done = ettr("ingest", store, *files, "--timezone", "UTC")
    assert done.code == 0, done.err
    return store


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        *((name,) for name in ("status", "sizes", "failures", "mttf", "runs", "goodput", "nodes")),
        ("quality",),
        ("project", "--nodes", "1,64"),
        ("plan", "--nodes", "1"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("store_name", ["example", "site"])
def test_sentences_of_the_commands(
    words: tuple[str, ...], store_name: str, request: pytest.FixtureRequest
) -> None:
    command, *options = words
    done = ettr(command, request.getfixturevalue(store_name), *options)
    assert done.code == 0, done.err
    assert not PLURAL_OF_ONE.findall(" ".join(done.out.split()))
