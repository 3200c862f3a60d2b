"""The training example's parts: the learning rate's course, random views, the checkpoint's file.

Covers: what a job's end cannot show. Does not cover: jobs (test_training).
"""

import importlib.util
import os
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError

torch = pytest.importorskip("torch", reason="the training example needs PyTorch")
Image: Any = pytest.importorskip("PIL.Image", reason="the training example decodes with Pillow")


def part(name: str) -> Any:
    """One of the example's modules; they are no package."""
    source = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up the module they are defined in
    spec.loader.exec_module(module)
    return module


MODEL, DATA = part("train_model"), part("train_data")


def test_the_rate_rises_evenly_to_its_peak_and_ends_at_zero() -> None:
    schedule = MODEL.Schedule(kind="cosine", peak=0.4, warm_up=5.0, epochs=90)
    assert schedule.rate(2.5) == pytest.approx(0.2)
    assert schedule.rate(5.0) == pytest.approx(0.4)
    falling = [schedule.rate(5 + share / 10) for share in range(851)]
    assert falling == sorted(falling, reverse=True)
    assert schedule.rate(47.5) == pytest.approx(0.2)
    assert schedule.rate(90.0) == pytest.approx(0.0)


def test_in_steps_the_rate_falls_to_a_tenth_after_epochs_30_60_and_80_of_90() -> None:
    schedule = MODEL.Schedule(kind="steps", peak=1.0, warm_up=0.0, epochs=90)
    rates = [schedule.rate(epochs_done) for epochs_done in (1.0, 30.0, 30.1, 60.1, 80.1, 90.0)]
    assert rates == pytest.approx([1.0, 1.0, 0.1, 0.01, 0.001, 0.001])


@pytest.mark.parametrize(("kind", "warm_up"), [("linear", 0.0), ("cosine", 11.0), ("cosine", -1.0)])
def test_a_schedule_that_cannot_be_is_refused(kind: str, warm_up: float) -> None:
    with pytest.raises(ConfigError, match="must be"):
        MODEL.Schedule(kind=kind, peak=0.1, warm_up=warm_up, epochs=10)


def test_ranks_and_seeds_do_not_share_randomness() -> None:
    seeds = {MODEL.derived_seed(seed, rank) for seed in range(50) for rank in range(50)}
    assert len(seeds) == 2500


def _sample(seed: int) -> dict[str, Any]:
    """A picture of 96 x 64 that grows brighter from left to right, in red, and from top to bottom, in green."""
    across = np.broadcast_to(np.linspace(0, 255, 96), (64, 96))
    down = np.broadcast_to(np.linspace(0, 255, 64)[:, None], (64, 96))
    pixels = np.stack([across, down, np.zeros((64, 96))], axis=2).astype(np.uint8)
    encoded = BytesIO()
    Image.fromarray(pixels).save(encoded, "PNG")
    return {"image/encoded": encoded.getvalue(), "image/class/label": 3, "__id__": 7, "__seed__": seed}


def test_a_random_view_is_a_part_of_the_picture_that_its_seed_decides() -> None:
    view = DATA.View(32, training=True)
    mirrored, areas = 0, []
    for seed in (*range(20), *range(2**63 - 20, 2**63)):
        first, again = view(_sample(seed)), view(_sample(seed))
        assert (first["image"].shape, first["label"], first["__id__"]) == ((3, 32, 32), 3, 7)
        assert np.array_equal(first["image"], again["image"])
        red, green = first["image"][0].astype(int), first["image"][1].astype(int)
        mirrored += bool(red[0, 0] > red[0, -1])
        assert green[0, 0] < green[-1, 0], "top and bottom never change places"
        areas.append(float(abs(red[0, -1] - red[0, 0]) * (green[-1, 0] - green[0, 0])) / 255**2)
    assert 8 < mirrored < 32
    assert 0.03 < min(areas) < 0.3
    assert 0.7 < max(areas) <= 1.0


def test_the_view_for_measuring_is_the_middle_whatever_the_seed() -> None:
    view = DATA.View(32, training=False)
    one, other = view(_sample(1))["image"], view(_sample(2))["image"]
    assert np.array_equal(one, other)
    for channel in (0, 1):
        assert abs(float(one[channel].mean()) - 127.5) < 3
    assert one[0, 0, 0] > 20  # of the longer side more is left out than the margin
    assert one[1, 0, 0] > 10


def test_a_checkpoint_comes_back_as_it_was_and_leaves_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "run.pt"
    for steps in range(2):
        MODEL.write_checkpoint(kept, {"model": "tiny", "steps": steps, "weights": torch.arange(5)})
    content = MODEL.read_checkpoint(kept, "tiny")
    assert content["steps"] == 1
    assert torch.equal(content["weights"], torch.arange(5))
    assert os.listdir(tmp_path) == ["run.pt"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    kept = tmp_path / "run.pt"
    MODEL.write_checkpoint(kept, {"model": "tiny", "steps": 1})
    with pytest.raises(Exception, match="pickle"):
        MODEL.write_checkpoint(kept, {"model": "tiny", "steps": 2, "cannot": lambda: None})
    assert MODEL.read_checkpoint(kept, "tiny")["steps"] == 1


class _Runs:
    """What a hostile checkpoint holds: unpickling it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._folder),)


@pytest.mark.parametrize("content", ["nothing", "text", "hostile", "another model", "another version"])
def test_what_is_no_checkpoint_of_this_model_is_refused_and_not_run(tmp_path: Path, content: str) -> None:
    kept, mark = tmp_path / "run.pt", tmp_path / "mark"
    match content:
        case "nothing" | "text":
            kept.write_text("" if content == "nothing" else "epoch 3\n")
        case "hostile":
            torch.save({"version": 1, "model": "tiny", "steps": _Runs(mark)}, kept)
        case "another model":
            MODEL.write_checkpoint(kept, {"model": "vgg19"})
        case _:
            torch.save({"version": 2, "model": "tiny"}, kept)
    with pytest.raises(ConfigError, match=r"run\.pt must be a checkpoint"):
        MODEL.read_checkpoint(kept, "tiny")
    assert not mark.exists()
