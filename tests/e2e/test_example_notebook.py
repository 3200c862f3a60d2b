"""The notebook of the examples runs from its first cell to its last one, as in a kernel that shows each cell's value."""

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"
pytest.importorskip("PIL.Image", reason="not installed: Pillow")


def _run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def test_each_cell_runs_and_no_record_is_lost_by_the_resume(capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell.get("outputs") for cell in cells), "outputs are of another machine"
    names: dict[str, Any] = {}
    try:
        values = [_run(source, names) for source in code]
    finally:
        if "daemon" in names:
            names["daemon"].kill()
            names["daemon"].wait()
    assert values[1].endswith("/pictures")
    assert values[2]["pixels"] == ((50, 64, 64, 3), np.dtype("uint8"))
    assert values[3].size == (64, 192)
    assert values[4] == (1000, 1000)
    assert values[-1] == 0, "the daemon ended as it was asked to"
    assert not names["folder"].exists()
    assert "rank 0 is bound by" in capsys.readouterr().out
