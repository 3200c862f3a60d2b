"""The position of a loader of tokens or pictures: layouts, pools and pipelines, which other batches do not have."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from emlio import DaliPipeline, EmlioLoader, TokenBatches
from emlio.errors import ConfigError, PlanError
from emlio_testing.token_records import TokenRun, all_tokens, count_tokens, read_packed, read_padded
from tests.integration.iteration.test_position import (
    _LENGTHS,
    _PACKED,
    _PACKED_WIDE,
    _PADDED,
    _Batch,
    _of,
    _pictures,
    _preset,
    _Run,
    _state,
    address,
    folder,
    run,
    runs,
)

__all__ = ["address", "folder", "run", "runs"]

# ---- tokens -----------------------------------------------------------------------------------------------------------


def _layout(world: int, steps: int | None, **way: Any) -> tuple[int, int | None, dict[str, Any]]:
    return world, steps, way


_MOVES = {
    "another pool": [_layout(2, 3, **_PADDED), _layout(2, None, tokens=TokenBatches(max_tokens=300, pool=23))],
    "another bound": [_layout(1, 5, **_PADDED), _layout(1, None, tokens=TokenBatches(max_tokens=200, pool=40))],
    "padded to packed": [_layout(2, 3, **_PADDED), _layout(2, None, **_PACKED)],
    "packed to padded": [_layout(2, 3, **_PACKED), _layout(2, None, **_PADDED)],
    "again and again": [
        _layout(2, 3, **_PADDED),
        _layout(3, 1, **_PACKED),
        _layout(1, 4, **_PACKED_WIDE),
        _layout(1, 2, **_PACKED_WIDE),
        _layout(2, None, **_PADDED),
    ],
}


def _tokens(address: str, **options: Any) -> EmlioLoader:
    return EmlioLoader(f"{address}/tokens", to="numpy", seed=3, **options)


@pytest.mark.parametrize("moves", _MOVES.values(), ids=list(_MOVES))
def test_in_another_layout_it_goes_on_without_losing_or_repeating_a_token(
    address: str, moves: list[tuple[int, int | None, dict[str, Any]]]
) -> None:
    seen: list[TokenRun] = []
    state: dict[str, Any] | None = None
    for world, steps, way in moves:
        with ExitStack() as stack:
            loaders = [
                stack.enter_context(_tokens(address, rank=rank, world_size=world, **way)) for rank in range(world)
            ]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
                assert loader.stats().repeated_records == 0
            wanted = loaders[0].remaining if steps is None else steps
            for batches in [iter(loader) for loader in loaders]:
                for _ in range(wanted):
                    batch = next(batches)
                    seen += read_packed(batch) if "segments" in batch else read_padded(batch)
            state = _state(loaders[0])
            assert all(_state(loader) == state for loader in loaders)
    assert count_tokens(seen) == all_tokens(_LENGTHS)
    assert loaders[0].remaining == 0


@_of(argvalues=["packed"])
def test_a_job_may_stop_again_and_again_before_a_pool_is_done(run: _Run) -> None:
    seen: list[_Batch] = []
    state = run.states[0]
    while len(seen) < len(run.epochs[0]):
        with run.loader() as loader:
            loader.load_state_dict(state)
            batches = iter(loader)
            seen += [run.read(next(batches)) for _ in range(min(7, loader.remaining))]
            state = _state(loader)
    assert seen == run.epochs[0]


def test_a_state_of_tokens_is_not_that_of_other_data_or_of_an_epoch_without_tokens(address: str) -> None:
    with (
        _tokens(address, **_PADDED) as loader,
        EmlioLoader(f"{address}/others", to="numpy", seed=3, **_PADDED) as others,
        _tokens(address, batch_size=8, raw=True) as plain,
    ):
        state = _state(loader)
        for stranger, what in ((others, "fingerprint"), (plain, "version")):
            with pytest.raises(PlanError, match=what):
                loader.load_state_dict(stranger.state_dict())
        with pytest.raises((PlanError, ConfigError), match="version"):
            plain.load_state_dict(state)
        assert _state(loader) == state


# ---- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures_of_a_directory_are_those_of_a_daemon_and_epochs_shorter_than_the_queue_are_whole(
    folder: Path, address: str
) -> None:
    pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
    options: dict[str, Any] = {"to": "numpy", "seed": 3}
    with (
        EmlioLoader(folder / "pictures", **options, **(_preset(9) | {"batch_size": 30})) as here,
        EmlioLoader(f"{address}/pictures", **options, **(_preset(1) | {"batch_size": 30})) as there,
    ):
        for epoch in range(12):
            assert (here.epoch, len(here)) == (epoch, 2)
            assert [_pictures(batch) for batch in here] == [_pictures(batch) for batch in there]


def test_a_users_pipeline_resumes_at_the_same_record_and_with_the_same_numbers(address: str) -> None:
    pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
    import emlio.dali

    def drawn() -> Any:
        return emlio.dali.inputs("image/class/label", random=2)

    def loader(**arguments: Any) -> EmlioLoader:
        dali = DaliPipeline(drawn, outputs=["label", "drawn"], args=arguments)
        return EmlioLoader(f"{address}/pictures", dali=dali, batch_size=8, to="numpy")

    with loader() as whole:
        batches = [(batch["label"].tolist(), batch["drawn"].tolist()) for batch in whole]
    with loader(prefetch_queue_depth=4) as left:
        handed = iter(left)
        next(handed)
        next(handed)
        state = left.state_dict()
    with loader() as rest:
        rest.load_state_dict(state)
        assert [(batch["label"].tolist(), batch["drawn"].tolist()) for batch in rest] == batches[2:]
