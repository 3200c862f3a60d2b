"""Text reports of a comparison of two jobs."""

from emlio.energy.report.comparison import Comparison, Ratio
from emlio.energy.report.text_table import ABSENT, TextTable, figure

__all__ = ["comparison_text"]

_MEANS = ("", "A", "B", "B : A", "epochs' least", "most")
_SHOWN = ("seconds", "total kJ", "J/sample")
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
    parts.extend(_by_epoch(found, one).text() for one in found.ratios if one.name in _SHOWN and len(found.titles) > 1)
    if found.estimated:
        parts.append("~ is an estimate: use the ratio of two estimates on one machine rather than their joules.")
    return "\n\n".join(parts)


def _means(found: Comparison) -> TextTable:
    many = len(found.titles)
    title = f"in the mean of {many} epochs" if many > 1 else found.titles[0]
    return TextTable(title=title, header=_MEANS, rows=tuple(_mean_row(one, found) for one in found.ratios))


def _mean_row(one: Ratio, found: Comparison) -> tuple[str, ...]:
    a, b = one.means
    least, most = one.spread or (None, None)
    return (one.name, _cell(a, one, found), _cell(b, one, found), figure(one.ratio), figure(least), figure(most))


def _by_epoch(found: Comparison, one: Ratio) -> TextTable:
    rows = [
        (title, _cell(a, one, found), _cell(b, one, found), figure(ratio))
        for title, a, b, ratio in zip(found.titles, one.a, one.b, one.ratios, strict=True)
    ]
    return TextTable(title=one.name, header=("", "A", "B", "B : A"), rows=tuple(rows))


def _cell(value: float | None, one: Ratio, found: Comparison) -> str:
    if value is None:
        return ABSENT
    return f"{'~' if found.estimated and one.name != 'seconds' else ''}{figure(value)}"
