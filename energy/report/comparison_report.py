"""Text reports of a comparison of two jobs."""

from emlio.energy.report.comparison import Comparison, Figure, Ratio
from emlio.energy.report.text_table import ABSENT, TextTable, figure

__all__ = ["comparison_text"]

_MEANS = ("", "A", "B", "B : A", "epochs' least", "most", "significant")
_TOLD_APART = {True: "yes", False: "no", None: ABSENT}
_SHOWN = ("seconds", "total J", "total kJ", "J/sample")
"""The measures shown epoch by epoch; a table of all would be too wide to read."""


def comparison_text(found: Comparison, a: str, b: str) -> str:
    """Return the report for a terminal.

    Args:
        found: the comparison.
        a: name of the first job.
        b: name of the second job.
    """
    parts = [f"A: {a}\nB: {b}"]
    if found.differences:
        parts.append("\n".join(["These jobs are not comparable:", *(f"  {one}" for one in found.differences)]))
    if found.remarks:
        parts.append("\n".join(found.remarks))
    parts.append(_means(found).text())
    if alike := [one.name for one in found.ratios if one.told_apart is False]:
        parts.append(
            f"A and B do not differ significantly in {', '.join(alike)}: what they may be off overlaps, or the differences of "
            "single epochs vary too much. More epochs may tell."
        )
    parts.extend(_by_epoch(found, one).text() for one in found.ratios if one.name in _SHOWN and len(found.titles) > 1)
    if found.estimated:
        parts.append(
            "~ is an estimate, ± how far its model may be off. On one machine the ratio of two estimates is better known "
            "than their joules, since part of that error is in both, but how large a part is not known."
        )
    return "\n\n".join(parts)


def _means(found: Comparison) -> TextTable:
    many = len(found.titles)
    title = f"in the mean of {many} epochs" if many > 1 else found.titles[0]
    return TextTable(title=title, header=_MEANS, rows=tuple(_mean_row(one, found) for one in found.ratios))


def _mean_row(one: Ratio, found: Comparison) -> tuple[str, ...]:
    a, b = one.means
    least, most = one.spread or (None, None)
    return (
        *(one.name, _cell(a, one, found), _cell(b, one, found)),
        *(figure(one.ratio), figure(least), figure(most), _TOLD_APART[one.told_apart]),
    )


def _by_epoch(found: Comparison, one: Ratio) -> TextTable:
    rows = [
        (title, _cell(a, one, found), _cell(b, one, found), figure(ratio))
        for title, a, b, ratio in zip(found.titles, one.a, one.b, one.ratios, strict=True)
    ]
    return TextTable(title=one.name, header=("", "A", "B", "B : A"), rows=tuple(rows))


def _cell(of: Figure | None, one: Ratio, found: Comparison) -> str:
    if of is None:
        return ABSENT
    error = f" ±{of.error / abs(of.value):.0%}" if of.error and of.value else ""
    return f"{'~' if found.estimated and one.name != 'seconds' else ''}{figure(of.value)}{error}"
