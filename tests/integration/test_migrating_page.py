"""The Python of docs/guide/migrating.md and of docs/guide/converting.md, run on datasets of the formats that they name."""

import json
import re
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emlio import EmlioLoader
from emlio_testing.format_files import put_mds, tar_of

DOCS = Path(__file__).parents[2] / "docs" / "guide"


def blocks(page: str) -> Iterator[str]:
    yield from re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run(block: str, name: str, folder: Path, **names: Any) -> dict[str, Any]:
    addresses = rf'"emlio://\w+:5555/{name}"'
    assert re.search(addresses, block)
    exec(compile(re.sub(addresses, lambda _: repr(str(folder)), block), "page", "exec"), names)
    names["loader"].close()
    return names


def picture(shade: int) -> bytes:
    written = BytesIO()
    Image.new("RGB", (40, 30), (shade, shade, shade)).save(written, "JPEG")
    return written.getvalue()


def test_the_script_for_webdataset_reads_its_tars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for shard in range(2):
        members = [
            (f"{shard}{number}.{extension}", content)
            for number in range(32)
            for extension, content in (
                ("jpg", picture(number)),
                ("cls", str(number % 5).encode()),
                ("json", json.dumps({"camera": "left"}).encode()),
            )
        ]
        (tmp_path / f"shard-{shard:06}.tar").write_bytes(tar_of(members))
    block = next(block for block in blocks("migrating.md") if 'sample["cls"]' in block)
    names = run(block, "pictures", tmp_path)
    assert names["images"].shape == (32, 224, 224, 3)
    assert set(names["labels"].tolist()) <= set(range(5))
    assert list(names["cameras"]) == ["left"] * 32
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_script_for_mosaicml_streaming_reads_its_folder(tmp_path: Path) -> None:
    samples = [{"number": np.int64(n).tobytes(), "text": f"text {n}".encode()} for n in range(32)]
    put_mds(tmp_path, {"number": ("int", 8), "text": ("str", None)}, *samples)
    block = next(block for block in blocks("migrating.md") if "documents" in block)
    names = run(block, "documents", tmp_path)
    assert [f"text {n}" for n in names["numbers"].tolist()] == list(names["texts"])
    assert names["state"]


def test_the_script_for_pytorch_reads_a_folder_of_classes(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(16):
            (tmp_path / name / f"{number}.jpg").write_bytes(picture(number))
    block = next(block for block in blocks("migrating.md") if "ImageFolder" in block)
    names = run(block, "classes", tmp_path)
    assert names["images"].shape == (32, 3, 224, 224)
    assert sorted(names["labels"].tolist()) == [0] * 16 + [1] * 16
    assert names["loader"].label_names == {0: "cat", 1: "dog"}


def test_a_training_on_text_goes_on_where_its_state_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emlio.cli import main

    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    tokens = np.arange(1, 40_001, dtype=np.uint16) % 4095 + 1
    np.save(tmp_path / "tokens.npy", tokens)
    assert main(["convert", "--from", "tokens", str(tmp_path / "tokens.npy"), str(tmp_path / "text")]) == 0
    block = next(block for block in blocks("converting.md") if "EmlioLoader" in block)
    block = block.replace("step % 10", "step % 2").replace("optimizer.zero_grad()", "seen.append(batch['input_ids'])")
    seen: list[Any] = []
    run(
        block.replace("enumerate(loader, 1)", "islice(enumerate(loader, 1), 4)"),
        "text",
        tmp_path / "text",
        seen=seen,
        islice=islice,
    )
    assert len(seen) == 4
    run(block, "text", tmp_path / "text", seen=seen)
    assert sorted(token for batch in seen for token in batch.reshape(-1).tolist() if token) == sorted(tokens.tolist())


def test_the_script_for_a_tokenizer_writes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    monkeypatch.chdir(tmp_path)
    Path("docs.jsonl").write_text('{"text": "the cat and the dog"}\n', encoding="utf-8")
    exec(compile(next(block for block in blocks("converting.md") if "BpeTrainer" in block), "page", "exec"), {})
    assert tokenizers.Tokenizer.from_file("tokenizer.json").encode("the cat").ids


def test_the_page_names_arguments_that_exist() -> None:
    import inspect

    text = (DOCS / "migrating.md").read_text(encoding="utf-8")
    cells = [line.split(" | ")[-1] for line in text.splitlines() if line.startswith("| ")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)=", cell)}
    assert named - {"recovery", "tokens"} <= set(inspect.signature(EmlioLoader).parameters)
