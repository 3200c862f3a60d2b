"""The scripts of docs/guide/migrating.md give the samples that the library gives which one comes from.

Covers: LitData (a copy of its chunks, of records and of tokens), PyTorch's DataLoader over torchvision's ImageFolder, where these
are installed.
Does not cover: WebDataset and MosaicML Streaming, whose folders are served in place (test_formats).
"""

import importlib.util
import json
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader

PAGE = (Path(__file__).parents[2] / "docs/guide/migrating.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
RECORDS = 100

pytestmark = [
    pytest.mark.interop,
    # The libraries make tensors of what they read, without a copy.
    pytest.mark.filterwarnings("ignore:The given .* is not writable:UserWarning"),
]

# In a process of its own: its workers import the function that makes samples.
_MAKE = """
import sys
from litdata import optimize

def sample(number):
    return {"number": number, "text": f"text {number}"}

if __name__ == "__main__":
    optimize(fn=sample, inputs=list(range(int(sys.argv[2]))), output_dir=sys.argv[1], chunk_bytes="1KB", num_workers=2)
"""

# So does this: litdata keeps the files of its chunks open.
_READ = """
import json, sys
from litdata import StreamingDataLoader, StreamingDataset

found = {}
for batch in StreamingDataLoader(StreamingDataset(sys.argv[1]), batch_size=16):
    found.update(zip(batch["number"].tolist(), batch["text"], strict=True))
print(json.dumps(found))
"""

_MAKE_TOKENS = """
import sys
import torch
from litdata import TokensLoader, optimize

def document(number):
    yield torch.arange(1000 * number, 1000 * number + 300 + number, dtype=torch.int32)

if __name__ == "__main__":
    optimize(fn=document, inputs=list(range(60)), output_dir=sys.argv[1], chunk_size=8192, num_workers=1,
             item_loader=TokensLoader())
"""


def _alone(program: str, *arguments: object) -> str:
    """Run a program in a process of its own, and return its output."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(words, check=True, timeout=240, capture_output=True, text=True).stdout


def _make(script: Path, source: str, *arguments: object) -> None:
    script.write_text(source, encoding="utf-8")
    subprocess.run([sys.executable, str(script), *map(str, arguments)], check=True, timeout=240)


def _block(holds: str) -> str:
    return next(block for block in BLOCKS if holds in block)


def _placed(block: str, **places: Path) -> str:
    for written, place in places.items():
        block, found = re.subn(rf'"[^"]*{written}"', lambda _, place=place: repr(str(place)), block)
        assert found
    return block


def _run(block: str, **places: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(_placed(block, **places), "page", "exec"), names)
    return names


@pytest.mark.skipif(
    importlib.util.find_spec("litdata") is None, reason="litdata is not installed: scripts/test --interop"
)
def test_a_copy_of_chunks_of_litdata_has_its_samples(tmp_path: Path) -> None:
    optimized, documents = tmp_path / "optimized", tmp_path / "documents"
    _make(tmp_path / "make.py", _MAKE, optimized, RECORDS)
    _alone(_placed(_block("emlio.Writer"), optimized=optimized, documents=documents))
    before = {int(number): text for number, text in json.loads(_alone(_READ, optimized).splitlines()[-1]).items()}
    after: dict[int, str] = {}
    with EmlioLoader(str(tmp_path / "documents"), batch_size=16, seed=42, epochs=1) as loader:
        for batch in loader:
            texts = [bytes(text).decode() for text in batch["text"]]
            after.update(zip(batch["number"].tolist(), texts, strict=True))
    assert after == before
    assert len(after) == RECORDS
    names = _run(_block("texts are bytes"), documents=tmp_path / "documents")
    names["loader"].close()
    assert names["state"]


@pytest.mark.skipif(
    importlib.util.find_spec("litdata") is None, reason="litdata is not installed: scripts/test --interop"
)
def test_a_copy_of_tokens_of_litdata_has_its_blocks(tmp_path: Path) -> None:
    _make(tmp_path / "make.py", _MAKE_TOKENS, tmp_path / "optimized")
    places = {"optimized-tokens": tmp_path / "optimized", "blocks": tmp_path / "to"}
    copy = _placed(_block("TokensLoader(block"), **places)
    told = _alone(f"{copy}\nimport json\nprint(json.dumps([block.tolist() for block in source]))")
    wanted = json.loads(told.splitlines()[-1])
    assert len(wanted) > 1
    block = _block("TokenBatches(pack").replace("batch_size=16", "batch_size=1").replace("tokens = ", "got += ")
    names = _run("got = []\n" + block.replace('["tokens"]', '["tokens"].tolist()'), blocks=tmp_path / "to")
    names["loader"].close()
    assert sorted(names["got"]) == sorted(wanted)


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed: scripts/test --interop"
)
def test_the_script_for_pytorch_gives_what_a_folder_of_torchvision_gives(tmp_path: Path) -> None:
    from PIL import Image
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    for shade in range(32):
        folder = tmp_path / "classes" / ("cat" if shade % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        written = BytesIO()
        Image.new("RGB", (40, 30), (8 * shade, 0, 0)).save(written, "PNG")
        (folder / f"{shade}.png").write_bytes(written.getvalue())

    def transform(picture: Any) -> np.ndarray[Any, Any]:
        return np.array(picture.resize((224, 224))).transpose(2, 0, 1)

    def shades(images: Any, labels: Any) -> list[tuple[int, int]]:
        return list(zip(images[:, 0, 0, 0].tolist(), labels.tolist(), strict=True))

    before = DataLoader(ImageFolder(str(tmp_path / "classes"), transform=transform), batch_size=32, shuffle=True)
    wanted = [pair for images, labels in before for pair in shades(images, labels)]
    names = _run(_block("ImageFolder"), classes=tmp_path / "classes")
    names["loader"].close()
    assert sorted(shades(names["images"], names["labels"])) == sorted(wanted)
