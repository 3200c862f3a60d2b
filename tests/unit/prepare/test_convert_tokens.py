"""Sources of tokens: files of tokens of all kinds, and text with a tokenizer."""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.prepare.sample import Sample
from emlio.prepare.sources.choice import guess_kind, open_source
from emlio.prepare.sources.settings import SourceSettings, TokenizerSettings
from emlio.prepare.sources.tokenized_text import TokenizedText
from emlio.prepare.targets.example_form import example_record
from emlio_testing.format_files import write_megatron
from emlio_testing.text_tokenizer import END, save_tokenizer


def _records(
    path: Path, kind: str = "tokens", options: Mapping[str, str] | None = None, **settings: Any
) -> list[list[int]]:
    """The tokens of each record, as they lie in a TFRecord file."""
    scratch = path.parent / "scratch"
    with closing(open_source(path, kind, None, scratch, options, SourceSettings(**settings))) as source:
        dtype = np.dtype(source.listing.tokens).newbyteorder("<")
        samples = [source.record(place) for place in range(len(source.listing.sizes_bytes))]
        assert len({source.key(place) for place in range(len(samples))}) == len(samples)
    found = [np.frombuffer(b"".join(example_record(sample).parts), dtype).tolist() for sample in samples]
    assert not scratch.exists()
    return found


class TestFiles:
    @pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32"])
    def test_a_flat_file_is_cut_and_its_end_is_kept(self, tmp_path: Path, dtype: str) -> None:
        np.arange(10, dtype=np.dtype(dtype).newbyteorder("<")).tofile(tmp_path / "a.bin")
        assert _records(tmp_path / "a.bin", dtype=dtype, sequence_length=4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert _records(tmp_path, dtype=dtype) == [list(range(10))]
        with pytest.raises(ConfigError, match=r"a.bin: the type of the tokens in a .bin file must be given: --dtype"):
            _records(tmp_path)

    def test_a_long_flat_file_is_cut_without_being_asked(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.arange(5000, dtype=np.uint16))
        assert [len(record) for record in _records(tmp_path)] == [2048, 2048, 904]

    def test_rows_of_arrays_stay_whole_unless_a_length_is_asked_for(self, tmp_path: Path) -> None:
        np.save(tmp_path / "b.npy", np.arange(6, dtype=">i4").reshape(2, 3))
        assert _records(tmp_path) == [[0, 1, 2], [3, 4, 5]]
        assert _records(tmp_path, sequence_length=2) == [[0, 1], [2], [3, 4], [5]]

    def test_documents_with_an_index_stay_whole_unless_a_length_is_asked_for(self, tmp_path: Path) -> None:
        documents = [[np.arange(5, dtype=np.uint16)], [np.arange(2, dtype=np.uint16), np.arange(2, dtype=np.uint16)]]
        write_megatron(tmp_path / "a", documents, np.uint16)
        for path in (tmp_path, tmp_path / "a.bin", tmp_path / "a.idx"):
            for kind in ("tokens", "megatron", guess_kind(path)):
                assert _records(path, kind) == [[0, 1, 2, 3, 4], [0, 1, 0, 1]]
        assert _records(tmp_path, sequence_length=3) == [[0, 1, 2], [3, 4], [0, 1, 0], [1]]

    def test_a_window_gives_records_that_share_a_token(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.arange(9, dtype=np.uint16))
        assert _records(tmp_path, options={"window": "4"}) == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]
        with pytest.raises(ConfigError, match="either window or --sequence-length"):
            _records(tmp_path, options={"window": "4"}, sequence_length=4)
        with pytest.raises(ConfigError, match="window must be a number of tokens of at least 1, got '0'"):
            _records(tmp_path, options={"window": "0"})

    def test_a_file_without_tokens_has_no_records(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros(0, np.uint16))
        np.save(tmp_path / "b.npy", np.ones(1, np.uint16))
        assert _records(tmp_path) == [[1]]
        assert _records(tmp_path, options={"window": "1"}) == []

    def test_tokens_get_another_type_if_they_fit(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([0, 65_535]))
        assert _records(tmp_path, dtype="uint16") == [[0, 65_535]]
        np.save(tmp_path / "a.npy", np.array([0, 65_536]))
        with pytest.raises(DatasetError, match="tokens must fit uint16, got 65536"):
            _records(tmp_path, dtype="uint16")

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"a.npy": np.zeros(2)}, r"a\.npy: must hold whole numbers in one dimension"),
            ({"a.npy": np.zeros((1, 1, 1), int)}, "or rows of them in C order, is int64"),
            ({"a.npy": np.asfortranarray(np.zeros((2, 2), int))}, "rows of them in C order"),
            ({"a.npy": np.zeros(2, np.uint64)}, "must have tokens of int8, .*, has uint64: give --dtype"),
            (
                {"a.npy": np.zeros(2, "u2"), "b.npy": np.zeros(2, "i4")},
                r"b\.npy: all files must have tokens of one type",
            ),
            ({}, r"must hold \.npy or \.bin files of tokens, holds none"),
        ],
        ids=["floats", "three dimensions", "columns first", "too large a type", "two types", "none"],
    )
    def test_files_that_are_no_tokens_are_named(self, tmp_path: Path, arrays: Mapping[str, Any], message: str) -> None:
        for name, array in arrays.items():
            np.save(tmp_path / name, array)
        (tmp_path / "note.txt").write_text("x")
        with pytest.raises(DatasetError, match=message):
            _records(tmp_path)

    def test_half_a_token_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a.bin").write_bytes(b"123")
        with pytest.raises(DatasetError, match=r"whole tokens of 2 bytes \(uint16\), has 3 bytes"):
            _records(tmp_path, dtype="uint16")

    def test_a_file_that_changes_is_an_error(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.arange(9, dtype=np.uint16))
        source = open_source(tmp_path, "tokens", None, tmp_path / "scratch")
        np.save(tmp_path / "a.npy", np.arange(10, dtype=np.uint16))
        with pytest.raises(DatasetError, match="changed during the conversion"):
            source.record(0)


class TestText:
    @pytest.fixture
    def tokenizer(self, tmp_path: Path) -> Path:
        return save_tokenizer(tmp_path / "trained" / "tokenizer.json", ["red green blue"])

    @pytest.fixture
    def lines(self, tmp_path: Path) -> Path:
        path = tmp_path / "text.jsonl"
        path.write_text("".join(json.dumps({"text": text, "n": 1}) + "\n" for text in ("red blue", "", "green")))
        return path

    def _settings(self, tokenizer: Path, **options: Any) -> TokenizerSettings:
        return TokenizerSettings(name=str(tokenizer), **options)

    def test_each_text_becomes_its_tokens_from_any_source(self, tmp_path: Path, tokenizer: Path, lines: Path) -> None:
        import tokenizers

        library: Any = tokenizers
        of: Any = library.Tokenizer.from_file(str(tokenizer))
        wanted = [of.encode(text).ids for text in ("red blue", "", "green")]
        assert guess_kind(lines, of_text=True) == "jsonl"
        for name in (tokenizer, tokenizer.parent):
            assert _records(lines, "jsonl", tokenizer=self._settings(name)) == wanted
        (tmp_path / "files").mkdir()
        for number, text in enumerate(("red blue", "", "green")):
            (tmp_path / "files" / f"{number}.txt").write_text(text)
        assert _records(tmp_path / "files", "files", tokenizer=self._settings(tokenizer)) == wanted

    def test_the_end_of_a_document_is_what_the_tokenizer_tells_or_the_user(self, tokenizer: Path, lines: Path) -> None:
        plain = _records(lines, "jsonl", tokenizer=self._settings(tokenizer))
        end = json.loads(tokenizer.read_text())["model"]["vocab"][END]
        for options in ({}, {"eos_token": END}):
            ended = _records(lines, "jsonl", tokenizer=self._settings(tokenizer, append_eos=True, **options))
            assert ended == [[*tokens, end] for tokens in plain]
        (tokenizer.parent / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "a"}}))
        ended = _records(lines, "jsonl", tokenizer=self._settings(tokenizer, append_eos=True))
        assert {tokens[-1] for tokens in ended} == {json.loads(tokenizer.read_text())["model"]["vocab"]["a"]}
        with pytest.raises(ConfigError, match=f"must be a token of the tokenizer, got 'no such'. .* are {END}"):
            _records(lines, "jsonl", tokenizer=self._settings(tokenizer, append_eos=True, eos_token="no such"))

    def test_an_end_that_no_one_tells_must_be_given(self, tmp_path: Path, lines: Path) -> None:
        odd = save_tokenizer(tmp_path / "odd.json", ["red"], end="<fin>")
        with pytest.raises(ConfigError, match=r"must be given with --eos-token .* special tokens are <fin>"):
            _records(lines, "jsonl", tokenizer=self._settings(odd, append_eos=True))

    def test_the_smallest_type_that_holds_all_tokens_is_chosen(self, tokenizer: Path, lines: Path) -> None:
        def listed(**settings: Any) -> str:
            chosen = SourceSettings(tokenizer=self._settings(tokenizer), **settings)
            with closing(open_source(lines, "jsonl", None, lines.parent / "scratch", None, chosen)) as source:
                return source.listing.tokens

        assert listed() == "uint16"
        assert listed(dtype="int32") == "int32"
        with pytest.raises(ConfigError, match=r"must hold the tokenizer's largest token, .*, got uint8"):
            listed(dtype="uint8")
        assert not (lines.parent / "scratch").exists()
        large: Any = SimpleNamespace(largest=65_536, fingerprint="large")
        with closing(open_source(lines, "jsonl", None, lines.parent / "scratch")) as source:
            assert TokenizedText(source, large, "text", None).listing.tokens == "int32"

    def test_a_missing_column_is_named_with_those_that_are_there(self, tokenizer: Path, lines: Path) -> None:
        with pytest.raises(DatasetError, match=r"in a column 'txt' .*, there are 'n', 'text'; did you mean 'text'"):
            _records(lines, "jsonl", tokenizer=self._settings(tokenizer, text_field="txt"))
        with pytest.raises(DatasetError, match=r"the column 'n' must hold text, got .*1"):
            _records(lines, "jsonl", tokenizer=self._settings(tokenizer, text_field="n"))

    def test_bytes_that_are_no_text_are_an_error(self, tmp_path: Path, tokenizer: Path) -> None:
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "a.txt").write_bytes(b"\xff")
        with pytest.raises(DatasetError, match="must hold text in UTF-8"):
            _records(tmp_path / "files", "files", tokenizer=self._settings(tokenizer))

    def test_other_tokenizers_and_columns_make_other_datasets(
        self, tmp_path: Path, tokenizer: Path, lines: Path
    ) -> None:
        other = save_tokenizer(tmp_path / "other.json", ["yellow"])

        def fingerprint(of: TokenizerSettings) -> str:
            with closing(
                open_source(lines, "jsonl", None, tmp_path / "scratch", None, SourceSettings(tokenizer=of))
            ) as source:
                return source.listing.fingerprint

        ways = [
            self._settings(tokenizer),
            self._settings(tokenizer, append_eos=True),
            self._settings(tokenizer, text_field="n"),
            self._settings(other),
        ]
        assert len(set(map(fingerprint, ways))) == len(ways)
        assert fingerprint(ways[0]) == fingerprint(self._settings(tokenizer.parent))

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("gone.json", "there is no file gone.json"),
            ("./gone", "there is no file gone"),
            ("broken.json", r"must be a tokenizer\.json of Hugging Face"),
        ],
    )
    def test_a_tokenizer_that_cannot_be_used_is_named(
        self, tmp_path: Path, lines: Path, name: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("broken.json").write_text("{}")
        with pytest.raises(ConfigError, match=message):
            _records(lines, "jsonl", tokenizer=TokenizerSettings(name=name))

    def test_a_missing_library_is_named(self, tokenizer: Path, lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(ConfigError, match='requires tokenizers: pip install "tokenizers'):
            _records(lines, "jsonl", tokenizer=self._settings(tokenizer))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SourceSettings(dtype="float32"), "--dtype must be one of int8, .*, got 'float32'"),
        (lambda: SourceSettings(sequence_length=0), "--sequence-length must be a whole number .*, got 0"),
        (lambda: SourceSettings(delimiter=";;"), "--delimiter must be one character, or tab, got ';;'"),
        (lambda: TokenizerSettings(name=""), "--tokenizer must be a tokenizer.json, .*, got none"),
        (lambda: TokenizerSettings(name="a", eos_token="b"), "--eos-token 'b' must be given with --append-eos"),
        (
            lambda: SourceSettings(dtype="uint16").check("jsonl"),
            "--dtype must be given with --from megatron or --from to",
        ),
        (lambda: SourceSettings(sequence_length=1).check("npy"), "--sequence-length 1 for a source of kind npy"),
        (lambda: SourceSettings(file_column="a").check("tar"), "--file-column must be given with --from csv, got"),
        (
            lambda: SourceSettings(tokenizer=TokenizerSettings(name="a")).check("npz"),
            "--tokenizer requires a source with text, such as jsonl, got npz",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_does_not_fit_a_source_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_bare_record_is_the_bytes_of_its_array() -> None:
    sample = Sample(columns={"a": np.arange(4, dtype=np.uint8).reshape(2, 2).T}, main="a", bare=True)
    assert example_record(sample).parts == (bytes([0, 2, 1, 3]),)


def test_tokens_have_no_classes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "labels.txt").write_text("cat\n")
    with pytest.raises(ConfigError, match="labels cannot be used with tokens"):
        open_source(tmp_path, "tokens", tmp_path / "labels.txt", tmp_path / "scratch")
