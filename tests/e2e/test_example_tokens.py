"""The example that trains a small language model on packed tokens, as a user starts it.

Covers: it learns from what a daemon pushes, its own or a given one; it looks at no other document of a row. Does not cover:
what is in the batches (tests/integration/test_loader_tokens.py).
"""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from emlio_testing.processes import DaemonProcess
from emlio_testing.rank_groups import TORCH_ENVIRONMENT, run_script
from emlio_testing.token_records import make_token_dataset

EXAMPLE = Path(__file__).parents[2] / "examples" / "tokens.py"
END_S = 60.0

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="not installed: torch"),
    pytest.mark.usefixtures("torch_starts"),
]


def run(*words: object) -> str:
    """What it prints."""
    return run_script(EXAMPLE, *words, timeout_s=END_S, environment=TORCH_ENVIRONMENT)


def test_it_writes_documents_starts_a_daemon_and_learns() -> None:
    output = run("--records", 1500, "--steps", 60, "--pool", 512)
    said = re.search(r"loss (\S+) before, (\S+) after 60 steps", output)
    assert said is not None, output
    before, after = float(said[1]), float(said[2])
    assert 3.0 < before < 4.0  # of 28 letters it knows nothing yet
    assert after < 0.5 * before
    cost = re.search(r"([\d,]+) tokens/s, (\S+)% of the places are padding", output)
    assert cost is not None, output
    assert int(cost[1].replace(",", "")) > 0
    assert 0.0 < float(cost[2]) < 10.0
    assert "ended: the rank sent goodbye" in output


def test_it_trains_for_several_epochs_on_what_another_daemon_serves(tmp_path: Path) -> None:
    # Every token is the one before it and 1; they all come from one record, cut or not.
    make_token_dataset(tmp_path / "rising", [90], shards=1)
    with DaemonProcess({"rising": tmp_path / "rising"}, folder=tmp_path) as daemon:
        words = ("--address", daemon.address("rising"), "--vocabulary", 90, "--steps", 51, "--pack", 32, "--rows", 1)
        output = run(*words)
    assert "epoch 0  loss" in output
    assert "step    51  epoch 16  loss" in output  # three rows an epoch


def load() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("example_tokens", EXAMPLE)
    if spec is None or spec.loader is None:
        raise AssertionError("the example is a file of Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_model_looks_only_at_earlier_tokens_of_the_same_document() -> None:
    import torch

    torch.manual_seed(1)
    model = load().Model(vocabulary=20, row_tokens=8)
    segments = torch.tensor([[1, 1, 1, 2, 2, 2, 0, 0]], dtype=torch.int32)
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 0]], dtype=torch.int32)
    tokens = torch.randint(0, 20, (1, 8), dtype=torch.int32)

    def scores(of: Any) -> Any:
        with torch.no_grad():
            return model({"tokens": of, "segments": segments, "positions": positions})

    plain = scores(tokens)
    for place, reached in ((0, {0, 1, 2}), (2, {2}), (3, {3, 4, 5}), (4, {4, 5}), (6, {6, 7})):
        other = tokens.clone()
        other[0, place] = (other[0, place] + 1) % 20
        changed = (scores(other) - plain).abs().amax(dim=(0, 2)) > 1e-6
        assert set(changed.nonzero().ravel().tolist()) == reached


def test_its_loss_is_of_tokens_that_have_a_next_one_in_their_document() -> None:
    import torch

    module = load()
    tokens = torch.tensor([[5, 6, 7, 8, 9, 0]], dtype=torch.int32)
    batch = {"tokens": tokens, "segments": torch.tensor([[1, 1, 2, 2, 2, 0]], dtype=torch.int32)}

    def sure(of: Any) -> Any:
        """A model that is certain of the next number."""
        wanted = (of["tokens"].long() + 1).clamp(max=9)
        return 100.0 * torch.nn.functional.one_hot(wanted, 10).float()

    assert float(module.loss_of(sure, batch)) < 1e-6
    across = {**batch, "segments": torch.tensor([[1, 1, 1, 1, 1, 1]], dtype=torch.int32)}
    assert float(module.loss_of(sure, across)) > 10  # 0 does not come after 9
