"""The command: all programs in all circumstances, or some, as a table."""

import argparse
import tempfile
from pathlib import Path

from tests.e2e.programs.circumstances import CIRCUMSTANCES
from tests.e2e.programs.matrix import Matrix, printed
from tests.e2e.programs.table import PROGRAMS


def main() -> int:
    """Return 1 if a program differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.programs", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose names have this")
    parser.add_argument("--circumstance", default="", metavar="TEXT", help="circumstances whose names have this")
    told = parser.parse_args()
    columns: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as place:
        matrix = Matrix(Path(place), [one for one in PROGRAMS if told.only in one.name])
        try:
            for name, outcome in matrix.wanted.items():
                if outcome.status or told.only:
                    print(
                        f"in the folder: {name}: status {outcome.status}: {outcome.said[-500:]} {outcome.errors[-500:]}",
                        flush=True,
                    )
            for one in CIRCUMSTANCES:
                if told.circumstance not in one.name:
                    continue
                if one.refused:
                    print(f"{one.name}: left out: {one.refused}", flush=True)
                    continue
                columns[one.name] = dict(matrix.compare(one))
                for name, difference in columns[one.name].items():
                    if difference:
                        print(f"{one.name}: {name}: {difference}", flush=True)
        finally:
            matrix.close()
        print(printed(columns, matrix.missing))
    return int(any(any(column.values()) for column in columns.values()))


raise SystemExit(main())
