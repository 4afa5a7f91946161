"""How well failures are explained: what comes together, and how often the window errs."""

from __future__ import annotations

from ettr.attribution.chance import CoOccurrences, FalseAttribution
from ettr.report.numbers import number, share_between
from ettr.report.section import Figure, Section, Table


def attribution_section(together: CoOccurrences, wrong: FalseAttribution) -> Section:
    """Co-occurrence of symptoms and the rate of false attribution."""
    lead = (
        f"The same window over {wrong.n_completed:,} completed attempts would have blamed "
        f"{wrong.n_touched:,} of them: {share_between(wrong.share)} "
        f"(published: {wrong.published}). {wrong.n_on_evidence:,} failures rest on a check alone; "
        f"{number(wrong.expected_by_chance)} of such would be expected by chance. Of "
        f"{together.n_failures:,} explained failures {together.n_several:,} "
        f"({share_between(together.several)}) show several symptoms."
    )
    tables = (
        Table(
            "Critical symptoms beside completed attempts",
            ("symptom", "attempts", "share"),
            tuple(
                (s.symptom, number(s.n_attempts), share_between(s.share)) for s in wrong.by_symptom
            ),
            frozenset({1, 2}),
        ),
        Table(
            "Symptoms that come together",
            ("of failures with", "also", "both", "of", "share"),
            tuple(
                (
                    pair.symptom,
                    pair.other,
                    number(pair.n_both),
                    number(pair.n_symptom),
                    share_between(pair.share),
                )
                for pair in together.pairs
            ),
            frozenset({2, 3, 4}),
        ),
    )
    figures = (_heatmap(together),) if together.pairs else ()
    notes = (
        "An interruption is explained by critical episodes on its nodes within the window; bursts "
        "fold into one episode. What no episode explains stays unattributed.",
    )
    return Section("attribution", "How sure the causes are", lead, figures, tables, notes)


def _heatmap(together: CoOccurrences) -> Figure:
    names = sorted({p.symptom for p in together.pairs} | {p.other for p in together.pairs})
    shares = {(p.symptom, p.other): p.share.estimate for p in together.pairs}
    return Figure(
        "co-occurrence",
        "Symptoms that come together",
        "Of the failures with the symptom on the left, the share that also showed the other.",
        (
            {
                "type": "heatmap",
                "x": names,
                "y": names,
                "z": [[shares.get((left, other)) for other in names] for left in names],
                "zmin": 0,
                "zmax": 1,
                "colorscale": "Blues",
                "hovertemplate": "%{y} with %{x}: %{z:.0%}<extra></extra>",
            },
        ),
        {"margin": {"l": 140}},
    )
