"""A note of the site stands above the report's first number, and changes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import ettr, write_logs

TEXT = "Failures were injected <b>here</b>."


@pytest.mark.slow
def test_a_note_is_the_first_thing_that_a_report_says(tmp_path: Path) -> None:
    logs, page = write_logs(tmp_path), tmp_path / "report.html"
    note = tmp_path / "note.txt"
    note.write_text(f"# ettr note\n# for Ann\n{TEXT}\n")
    done = ettr("report", "--detail", note, *logs, "--timezone", "UTC", "-o", page)
    assert done.code == 0, done.err
    assert 0 <= done.out.index(TEXT) < done.out.index("The logs span")
    html = page.read_text("utf-8")
    shown = html.index("Failures were injected &lt;b&gt;here&lt;/b&gt;.")
    assert shown < html.index("The logs span") < html.index('class="answers"')
    assert "for Ann" not in html


@pytest.mark.slow
def test_a_note_is_in_the_json_and_changes_nothing_else(tmp_path: Path) -> None:
    logs = write_logs(tmp_path)
    note = tmp_path / "note.txt"
    note.write_text(f"# ettr note\n{TEXT}\n")
    with_note, without = (
        ettr("report", *files, "--timezone", "UTC", "--json").json
        for files in ((*logs, note), logs)
    )
    quality = with_note.pop("quality"), without.pop("quality")
    assert quality[0]["site_notes"] == [TEXT]
    assert quality[1]["site_notes"] == []
    assert quality[0]["assumptions"] == quality[1]["assumptions"]
    assert with_note == without


def test_a_note_without_text_or_too_long_is_refused(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    for text, words in (("# only a comment", "holds no text"), ("a" * 2001, "2,001 characters")):
        note.write_text(f"# ettr note\n{text}\n")
        done = ettr("ingest", tmp_path / "store", note)
        assert done.code != 0
        assert words in done.err
