"""Tokens from text and from files, converted, served by a daemon and handed out in batches."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from emlio import EmlioLoader, TokenBatches, Writer
from emlio.cli import main
from emlio.errors import ConfigError, DatasetError
from emlio.formats.tfrecord.mapping import read_mapping
from emlio.prepare.mappings import describe_directory
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.serving import served
from emlio_testing.text_tokenizer import END, save_tokenizer

_TOKENS = np.random.default_rng(1).integers(0, 65_536, 5_000).astype("<u2")


def _loader(address: "str | Path", **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"timeout": "20s", "seed": 3, "epochs": 1, "tokens": TokenBatches(pack=64), "batch_size": 4}
    return EmlioLoader(address, **loader_arguments(**(usual | options)))


def _convert(*words: object) -> None:
    assert main(["convert", *map(str, words)]) == 0


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """A converted flat file of uint16."""
    _TOKENS.tofile(tmp_path / "train.bin")
    words = ("--from", "tokens", "--dtype", "uint16", "--sequence-length", 100, "--shards", 3)
    _convert(*words, tmp_path / "train.bin", tmp_path / "flat")
    return tmp_path / "flat"


def test_a_flat_file_of_uint16_comes_back_without_saying_its_type_again(flat: Path) -> None:
    with served(flat, "flat") as address:
        for dtype, wanted in ((None, torch.int32), ("int64", torch.int64)):
            with _loader(address, tokens=TokenBatches(pack=64, dtype=dtype)) as loader:
                assert loader.schema["tokens"].kind == "uint16"
                batches = list(loader)
            assert {batch["tokens"].dtype for batch in batches} == {wanted}
            found = torch.cat([batch["tokens"][batch["segments"] > 0] for batch in batches])
            assert Counter(found.tolist()) == Counter(_TOKENS.tolist())
        with _loader(address, tokens=None, batch_size=5, to="numpy") as loader:
            rows = np.concatenate([batch["tokens"] for batch in loader])
        assert (rows.dtype, rows.shape) == (np.uint16, (50, 100))
        assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, _TOKENS.reshape(50, 100).tolist()))


def test_the_type_survives_another_conversion_new_mappings_and_an_appended_version(flat: Path, tmp_path: Path) -> None:
    _convert(flat, tmp_path / "again")
    describe_directory(flat)
    with Writer(tmp_path / "more", append_to=flat) as writer:
        writer.write(b"\1\0\2\0")
    for folder in (flat, tmp_path / "again", tmp_path / "more"):
        with _loader(folder) as loader:
            assert loader.schema["tokens"].kind == "uint16"
            assert sum(int((batch["segments"] > 0).sum()) for batch in loader) in (5_000, 5_002)


def test_the_recipe_trains_on_what_models_take(flat: Path) -> None:
    with _loader(flat, tokens=TokenBatches(pack=64, recipe="causal")) as loader:
        batch = next(iter(loader))
    assert list(batch) == ["input_ids", "labels", "attention_mask", "position_ids", "segments"]
    logits = torch.nn.Embedding(65_536, 8)(batch["input_ids"]) @ torch.zeros(8, 65_536)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())
    assert loss.item() == pytest.approx(np.log(65_536))


def test_text_becomes_tokens_that_are_the_same_text_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = save_tokenizer(tmp_path / "tokenizer.json", ["one two three four"])
    texts = [f"number {number} and Zoë" for number in range(40)]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    words = ("--tokenizer", tokenizer, "--text-field", "body", "--append-eos")
    _convert(*words, tmp_path / "text.jsonl", tmp_path / "out")
    assert read_mapping(tmp_path / "out" / "mapping_shard_00000.json").tokens == "uint16"
    assert main(["inspect", str(tmp_path / "out")]) == 0
    assert "tokens  uint16" in capsys.readouterr().out

    import tokenizers

    library: Any = tokenizers
    of: Any = library.Tokenizer.from_file(str(tokenizer))
    with served(tmp_path / "out") as address, _loader(address) as loader:
        found: list[str] = []
        for batch in loader:
            for row, segments in zip(batch["tokens"], batch["segments"], strict=True):
                for number in range(1, int(segments.max()) + 1):
                    tokens: list[int] = row[segments == number].tolist()
                    found.append(of.decode(tokens, skip_special_tokens=False))
    assert "".join(sorted(f"{text}{END}" for text in texts)) == "".join(sorted(found))


def test_a_type_that_is_not_the_datasets_is_refused(flat: Path) -> None:
    with pytest.raises(ConfigError, match="stored must be the type of the dataset's tokens, uint16, got 'int32'"):
        _loader(flat, tokens=TokenBatches(pack=64, stored="int32"))
    with _loader(flat, tokens=TokenBatches(pack=64, stored="uint16")) as loader:
        assert len(loader) > 0


def test_examples_are_no_tokens(tmp_path: Path) -> None:
    with Writer(tmp_path / "examples") as writer:
        writer.write({"text": "abcd"})
    with pytest.raises(DatasetError, match=r"those of the dataset are tf\.train\.Example with the features 'text'"):
        _loader(tmp_path / "examples")


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_raw_records_have_the_type_that_is_said_and_none_becomes_another_token(tmp_path: Path, on_error: str) -> None:
    with Writer(tmp_path / "raw") as writer:
        for last in (7, 2**31, 9):
            writer.write(np.array([5, last], "<u4").tobytes())
    tokens = TokenBatches(max_tokens=2, stored="uint32")
    with _loader(tmp_path / "raw", tokens=tokens, batch_size=None, on_error=on_error) as loader:
        if on_error == "raise":
            with pytest.raises(DatasetError, match="tokens must fit int32, the type of the batches, got 2147483648"):
                list(loader)
        else:
            rows = [row.tolist() for batch in loader for row in batch["tokens"][batch["lengths"] > 0]]
            assert sorted(rows) == [[5, 7], [5, 9]]
            assert loader.stats().skipped_records == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--append-eos",), "must be given with --tokenizer"),
        (("--dtype", "uint16", "--from", "jsonl"), "--dtype must be given with --from megatron or --from tokens"),
        (("--tokenizer", "gone.json", "--from", "jsonl"), "there is no file gone.json"),
    ],
    ids=["eos", "dtype", "tokenizer"],
)
def test_what_cannot_be_is_said_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    assert main(["convert", *words, str(tmp_path / "a.jsonl"), str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
