"""The Python of docs/guide/writing.md, run in its order with other folders."""

import re
from pathlib import Path
from typing import Any

from emlio.index.opening import open_dataset

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "writing.md"


def test_the_examples_run_and_write_what_they_say(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block.replace('"/data/', f'"{tmp_path}/'), str(PAGE), "exec"), names)
    assert names["depth"].shape == (480, 640)
    assert names["depth"].dtype == "float16"
    for number in (1, 0):
        names["write_part"](number, 2, [{"number": number} for number in range(5)])
    records: dict[str, int] = {}
    for folder in sorted(tmp_path.iterdir()):
        with open_dataset(folder.name, folder) as dataset:
            records[folder.name] = dataset.records
    assert records == {"arrays": 1, "many": 5, "pets": 2, "pets-2": 3, "tagged": 1}


def test_the_page_names_every_argument() -> None:
    import inspect

    from emlio import Writer

    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)=([^`]+)` \|", text, re.MULTILINE))
    parameters = list(inspect.signature(Writer).parameters.values())[1:]
    assert rows == {one.name: repr(one.default).replace("'", '"') for one in parameters}
