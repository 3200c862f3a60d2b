"""`emlio-bench padding`: what it prints, what it checks, what it refuses."""

import dataclasses
from pathlib import Path

import pytest

from emlio.planner.token_epoch import TokenEpoch, TokenShare
from emlio.planner.token_groups import TokenGroup
from emlio_bench.cli import main
from emlio_bench.harness.report import missed_bounds
from emlio_bench.harness.results import read_results
from emlio_bench.harness.settings import PaddingSettings
from emlio_bench.small import padding
from emlio_bench.small.padding import run_padding


def test_it_prints_both_ways_of_batching_beside_random_batches_and_keeps_its_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "padding.json"
    assert main(["padding", "--quick", "--worlds", "1,3", "--pools", "1024,4096", "--json", str(path)]) == 0
    text = capsys.readouterr().out
    assert "MISSED" not in text
    figures = {figure.name: figure for figure in read_results(path).figures}
    for layout in (
        "1 rank, pools of 1024",
        "1 rank, pools of 4096",
        "3 ranks, pools of 1024",
        "3 ranks, pools of 4096",
    ):
        ours, packed = (figures[f"padding, {how}, {layout}"].values[0] for how in ("by length", "packed 4 x 4096"))
        random = figures[f"padding of as many random batches, by length, {layout}"].values[0]
        assert 0 < packed < ours < random / 2
        assert 70 < random < 90
        assert figures[f"part of random batches' padding, by length, {layout}"].values[0] == pytest.approx(
            ours / random
        )
        assert figures[f"an epoch's plan, packed 4 x 4096, {layout}"].values[0] > 0
    one, four = (figures[f"padding, by length, 1 rank, pools of {pool}"].values[0] for pool in (1024, 4096))
    assert four < one / 2


@pytest.mark.parametrize(("records", "pools"), [(1_003, (50, 2_000)), (3, (50,))])
def test_records_that_do_not_divide_over_the_ranks_are_no_fault(records: int, pools: tuple[int, ...]) -> None:
    figures = run_padding(PaddingSettings(records=records, worlds=(8,), pools=pools, repeats=2)).figures
    checks = [figure for figure in figures if figure.at_most == 0]
    assert len(checks) == 3
    assert not missed_bounds(checks)


def test_pools_too_small_to_find_records_of_like_length_miss_the_bound() -> None:
    results = run_padding(PaddingSettings(records=1_000, worlds=(8,), pools=(50,), repeats=1))
    assert missed_bounds(results.figures) == ("part of random batches' padding, by length, 8 ranks, pools of 50",)


class _Forgetful(TokenEpoch):
    """Leaves a batch out on the first rank."""

    def share(self, rank: int, group: TokenGroup) -> TokenShare:
        share = super().share(rank, group)
        return share if rank else dataclasses.replace(share, batches=share.batches[1:])


class _Repetitive(TokenEpoch):
    """Hands a batch out twice."""

    def share(self, rank: int, group: TokenGroup) -> TokenShare:
        share = super().share(rank, group)
        return dataclasses.replace(share, batches=(*share.batches[1:], share.batches[1]))


@pytest.mark.parametrize(
    ("kind", "missed"),
    [
        (_Forgetful, ("records that did not come once", "ranks with another number of batches")),
        (_Repetitive, ("records that did not come once",)),
    ],
)
def test_a_plan_that_forgets_or_repeats_is_found_out(
    monkeypatch: pytest.MonkeyPatch, kind: type[TokenEpoch], missed: tuple[str, ...]
) -> None:
    monkeypatch.setattr("emlio.planner.token_plan.TokenEpoch", kind)
    results = run_padding(PaddingSettings(records=2_000, worlds=(2,), pools=(500,), repeats=1))
    assert missed_bounds(results.figures) == missed


def test_a_batch_beyond_its_bound_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "_room", lambda cut: 16_000)
    results = run_padding(PaddingSettings(records=2_000, worlds=(2,), pools=(500,), repeats=1))
    assert missed_bounds(results.figures) == ("batches beyond their bound",)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--worlds", "1,none"], "--worlds"),
        (["--pools", "0"], "--pools"),
        (["--pack", "20000"], "--pack must be at most --max-tokens, which is 16384, got 20000"),
        (["--max-tokens", "100", "--pack", "50"], "at most max_tokens=100"),
    ],
)
def test_what_cannot_be_is_named(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["padding", "--quick", *argv]) == 2
    assert said in capsys.readouterr().err
