"""The example from raw text to a small language model, as a user starts it.

Covers: the loss falls on a text of its own and on a user's; which outputs count for the loss. Does not cover: the model
(test_example_tokens.py), what becomes of the text (tests/integration/prepare/test_convert_tokens.py).
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emlio_testing.rank_groups import TORCH_ENVIRONMENT, run_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "text.py"
END_S = 60.0

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "tokenizers")),
        reason="not installed: torch or tokenizers",
    ),
    pytest.mark.usefixtures("torch_starts"),
]


def run(*words: object) -> tuple[float, float, str]:
    """The first loss, the last one, and all that it prints."""
    output = run_script(EXAMPLE, *words, timeout_s=END_S, environment=TORCH_ENVIRONMENT)
    said = re.search(r"loss (\S+) before, (\S+) after \d+ steps", output)
    assert said is not None, output
    return float(said[1]), float(said[2]), output


def test_it_trains_a_tokenizer_converts_serves_and_learns() -> None:
    before, after, output = run("--documents", 600, "--steps", 40)
    assert 5.0 < before < 7.0  # of 320 tokens it knows nothing yet
    assert after < 0.5 * before
    assert "data: 600 records" in output
    assert "600 documents, 320 tokens" in output


def test_it_takes_paragraphs_of_a_users_text(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n\n".join(f"Es war einmal Nummer {n}, schön und gut." for n in range(200)))
    before, after, output = run("--text", tmp_path / "book.txt", "--steps", 30, "--pack", 32)
    assert after < 0.5 * before
    assert "200 documents" in output


@pytest.mark.parametrize(
    ("example", "words", "said"),
    [
        pytest.param(
            "tokens.py",
            ("--steps", "0"),
            "argument --steps: must be a whole number of at least 1, got '0'",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "tokens.py",
            ("--vocabulary", "10"),
            "--vocabulary must be at least 28 for the documents of this run",
            marks=pytest.mark.slow,
        ),
        ("text.py", ("--text", "nofile.txt"), "--text must be a file of UTF-8 text: [Errno 2] No such file"),
    ],
)
def test_a_wrong_argument_is_told_in_a_sentence(example: str, words: tuple[str, str], said: str) -> None:
    command = [sys.executable, str(EXAMPLE.with_name(example)), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=False)
    assert ended.returncode
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_loss_is_of_each_next_token_of_the_same_document(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    spec = importlib.util.spec_from_file_location("example_text", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop("tokens", None)

    def sure(of: Any) -> Any:
        """A model that is certain of the next number."""
        return 100.0 * torch.nn.functional.one_hot((of["tokens"] + 1).clamp(max=9), 10).float()

    tokens = torch.tensor([[5, 6, 7, 3, 4, 0]])
    batch = {"input_ids": tokens, "segments": torch.tensor([[1, 1, 1, 2, 2, 0]]), "position_ids": tokens}
    inside = {**batch, "labels": torch.tensor([[-100, 6, 7, -100, 4, -100]])}
    assert float(module.loss_of(sure, inside)) < 1e-6
    assert float(module.loss_of(sure, {**batch, "labels": tokens})) > 10, "3 does not come after 7"
