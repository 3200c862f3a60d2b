"""The pictures that the presets make of records: sizes, values, crops, formats, and options that cannot be."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from emlio import DaliPipeline, EmlioLoader
from emlio.errors import ConfigError
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset

pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
torch = pytest.importorskip("torch", reason="needs PyTorch")

_MEAN, _STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
_COLOUR = (200, 30, 120)
_INTERPOLATIONS = ("nearest", "linear", "cubic", "lanczos", "triangular")


def _saved(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def _noise(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def _ramp(height: int, width: int) -> bytes:
    """A picture whose red says the column and whose green says the row."""
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))
    return _saved(Image.fromarray(np.stack([columns, rows, rows * 0], -1).astype(np.uint8)))


def _dataset(folder: Path, picture: Callable[[int], bytes], records: int = 8) -> Path:
    make_dataset(
        folder / "pictures",
        records=records,
        shards=2,
        payload=lambda record: encode_example({"image/encoded": [picture(record)], "image/class/label": [record]}),
    )
    return folder / "pictures"


def _loader(folder: Path, preset: str, *, batch_size: int = 8, **arguments: Any) -> EmlioLoader:
    return EmlioLoader(
        folder, batch_size=batch_size, seed=3, shuffle=False, dali=DaliPipeline(preset, args=arguments), threads=2
    )


def _pictures(folder: Path, preset: str, **arguments: Any) -> npt.NDArray[Any]:
    with _loader(folder, preset, **arguments) as loader:
        batches = list(loader)
        assert torch.cat([batch["label"] for batch in batches]).tolist() == list(range(sum(map(_count, batches))))
        pictures: npt.NDArray[Any] = torch.cat([batch["image"] for batch in batches]).numpy()
        return pictures


def _count(batch: dict[str, Any]) -> int:
    return len(batch["label"])


@pytest.mark.parametrize("preset", ["image-train", "image-eval"])
def test_pictures_come_normalised_channels_first_with_their_labels(tmp_path: Path, preset: str) -> None:
    folder = _dataset(tmp_path, lambda _: _saved(Image.new("RGB", (57, 43), _COLOUR)))
    with _loader(folder, preset, size=24, batch_size=5) as loader:
        batches = list(loader)
        assert (len(loader), [_count(batch) for batch in batches]) == (2, [5, 3])
    for batch in batches:
        assert set(batch) == {"image", "label"}
        assert (batch["image"].dtype, batch["label"].dtype) == (torch.float32, torch.int64)
        assert batch["image"].shape == (_count(batch), 3, 24, 24)
        wanted = ((np.array(_COLOUR) / 255 - _MEAN) / _STD)[None, :, None, None]
        np.testing.assert_allclose(batch["image"].numpy(), np.broadcast_to(wanted, batch["image"].shape), atol=2e-5)


def test_without_a_size_pictures_are_of_the_usual_one(tmp_path: Path) -> None:
    folder = _dataset(tmp_path, lambda _: _saved(Image.new("RGB", (30, 40))), records=2)
    assert _pictures(folder, "image-train").shape == _pictures(folder, "image-eval").shape == (2, 3, 224, 224)


@pytest.mark.parametrize("interpolation", _INTERPOLATIONS)
@pytest.mark.parametrize("preset", ["image-train", "image-eval"])
def test_every_interpolation_keeps_a_colour_exactly(tmp_path: Path, preset: str, interpolation: str) -> None:
    folder = _dataset(tmp_path, lambda record: _saved(Image.new("RGB", (20 + 9 * record, 50), _COLOUR)))
    pictures = _pictures(folder, preset, size=32, dtype="uint8", interpolation=interpolation)
    assert pictures.dtype == np.uint8
    assert (pictures == np.array(_COLOUR, np.uint8)[None, :, None, None]).all()


@pytest.mark.parametrize("interpolation", ["linear", "cubic", "lanczos"])
def test_an_evaluated_picture_is_what_pillow_resizes_and_cuts(tmp_path: Path, interpolation: str) -> None:
    # A smooth one: of noise each library makes something else at its filter's edges.
    rows, columns = np.mgrid[0:90, 0:120]
    waves = np.stack([127 + 100 * np.sin(rows / 17), 127 + 100 * np.cos(columns / 23), rows + columns], -1)
    picture = Image.fromarray(waves.astype(np.uint8))
    kind = {
        "linear": Image.Resampling.BILINEAR,
        "cubic": Image.Resampling.BICUBIC,
        "lanczos": Image.Resampling.LANCZOS,
    }
    wanted = np.asarray(picture.resize((64, 48), kind[interpolation]))[4:44, 12:52]
    folder = _dataset(tmp_path, lambda _: _saved(picture), records=2)
    made = _pictures(folder, "image-eval", size=40, shorter=48, dtype="uint8", interpolation=interpolation)
    difference = np.abs(made[0].transpose(1, 2, 0).astype(int) - wanted.astype(int))
    assert difference.mean() < 1
    assert difference.max() <= 8


def test_a_whole_picture_of_the_right_size_is_unchanged_and_its_mirror_image_is_exact(tmp_path: Path) -> None:
    noise = _noise(32, 32)
    folder = _dataset(tmp_path, lambda _: _saved(Image.fromarray(noise)), records=2)
    whole = {"size": 32, "scale": (1.0, 1.0), "ratio": (1.0, 1.0), "dtype": "uint8"}
    assert (_pictures(folder, "image-train", **whole, mirror=0)[0] == noise.transpose(2, 0, 1)).all()
    assert (_pictures(folder, "image-train", **whole, mirror=1)[0] == noise.transpose(2, 0, 1)[:, :, ::-1]).all()
    assert (_pictures(folder, "image-eval", size=32, shorter=32, dtype="uint8")[0] == noise.transpose(2, 0, 1)).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float", 2e-6), ("float16", 4e-3)])
def test_values_are_normalised_by_the_mean_and_deviation_given(tmp_path: Path, dtype: str, tolerance: float) -> None:
    noise = _noise(32, 32, 1)
    folder = _dataset(tmp_path, lambda _: _saved(Image.fromarray(noise)), records=2)
    mean, std = (0.1, 0.5, 0.9), (0.5, 1.0, 0.25)
    made = _pictures(folder, "image-eval", size=32, shorter=32, dtype=dtype, mean=mean, std=std)
    assert made.dtype == (np.float16 if dtype == "float16" else np.float32)
    wanted = (noise.transpose(2, 0, 1) / 255 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    np.testing.assert_allclose(made[0].astype(np.float64), wanted, atol=tolerance)


def _crops(folder: Path, **arguments: Any) -> npt.NDArray[np.float64]:
    """Of each record of ramps: left, top, width, height of the crop, and whether it was mirrored; to a pixel or two."""
    size = 64
    made = _pictures(folder, "image-train", size=size, dtype="uint8", interpolation="nearest", **arguments).astype(
        float
    )
    red, green = made[:, 0, size // 2], made[:, 1, :, size // 2]
    mirrored = red[:, 0] > red[:, -1]
    red[mirrored] = red[mirrored, ::-1]
    wide, high = ((line[:, -1] - line[:, 0]) * size / (size - 1) for line in (red, green))
    return np.stack([red[:, 0], green[:, 0], wide, high, mirrored], 1)


def test_random_crops_keep_to_their_bounds_and_fill_them(tmp_path: Path) -> None:
    height, width, records = 160, 200, 600
    ramp = _ramp(height, width)
    left, top, wide, high, mirrored = _crops(_dataset(tmp_path, lambda _: ramp, records), scale=(0.1, 0.6)).T
    area, shape = wide * high / (height * width), wide / high
    assert area.min() > 0.1 - 0.02
    assert area.max() < 0.6 + 0.02
    assert shape.min() > 0.75 * 0.93
    assert shape.max() < 4 / 3 * 1.07
    assert abs(np.quantile(area, [0.25, 0.5, 0.75]) - [0.225, 0.35, 0.475]).max() < 0.04, "evenly spread"
    assert abs(np.median(np.log(shape))) < 0.05, "wide and high ones alike"
    assert abs(mirrored.mean() - 0.5) < 0.08
    for low, extent, whole in ((left, wide, width), (top, high, height)):
        assert low.min() < 6, "some begin at the edge"
        assert (low + extent).max() > whole - 6, "some end at the other"
        assert abs((low / (whole - extent)).mean() - 0.5) < 0.05


def test_a_crop_is_as_often_at_the_last_place_as_at_the_first(tmp_path: Path) -> None:
    ramp = _ramp(8, 8)
    folder = _dataset(tmp_path, lambda _: ramp, 1000)
    made = _pictures(
        folder, "image-train", size=4, scale=(0.25, 0.25), ratio=(1, 1), dtype="uint8", mirror=0, batch_size=250
    )
    for channel in (0, 1):
        corner = made[:, channel, 0, 0]
        assert (made[:, channel].max((1, 2)) == corner + 3).all(), "four by four, unscaled"
        counts = np.bincount(corner, minlength=5)
        assert len(counts) == 5
        assert counts.min() > 150
        assert counts.max() < 250


@pytest.mark.parametrize("shape", [(200, 4), (4, 200), (1, 1), (1, 300), (300, 1), (2, 3)])
@pytest.mark.parametrize("preset", ["image-train", "image-eval"])
def test_pictures_of_any_shape_are_made(tmp_path: Path, preset: str, shape: tuple[int, int]) -> None:
    folder = _dataset(tmp_path, lambda _: _saved(Image.new("RGB", shape, _COLOUR)), records=16)
    made = _pictures(folder, preset, size=8, dtype="uint8")
    assert made.shape == (16, 3, 8, 8)
    assert (made == np.array(_COLOUR, np.uint8)[None, :, None, None]).all()


def _kinds() -> dict[str, bytes]:
    picture = Image.new("RGB", (48, 40), _COLOUR)
    turned = Image.Exif()
    turned[0x0112] = 6
    palette = picture.quantize(4)
    transparent = picture.convert("RGBA")
    transparent.putalpha(40)
    return {
        "jpeg": _saved(picture, "JPEG", quality=95),
        "progressive": _saved(picture, "JPEG", quality=95, progressive=True),
        "turned": _saved(picture, "JPEG", quality=95, exif=turned),
        "cmyk": _saved(picture.convert("CMYK"), "JPEG", quality=95),
        "png": _saved(picture),
        "palette": _saved(palette),
        "transparent": _saved(transparent),
        "webp": _saved(picture, "WEBP", lossless=True),
        "bmp": _saved(picture, "BMP"),
        "tiff": _saved(picture, "TIFF"),
        "pnm": _saved(picture, "PPM"),
        "jpeg2000": _saved(picture, "JPEG2000"),
    }


@pytest.mark.parametrize("kind", list(_kinds()))
@pytest.mark.parametrize("preset", ["image-train", "image-eval"])
def test_pictures_of_every_format_come_in_their_colours(tmp_path: Path, preset: str, kind: str) -> None:
    encoded = _kinds()[kind]
    folder = _dataset(tmp_path, lambda _: encoded, records=4)
    made = _pictures(folder, preset, size=32, dtype="uint8").astype(int)
    tolerance = 12 if kind == "cmyk" else 3
    assert np.abs(made - np.array(_COLOUR)[None, :, None, None]).max() <= tolerance


@pytest.mark.parametrize("preset", ["image-train", "image-eval"])
def test_grey_pictures_come_in_three_equal_channels(tmp_path: Path, preset: str) -> None:
    folder = _dataset(tmp_path, lambda record: _saved(Image.new("L", (40, 40), 90), ("JPEG", "PNG")[record % 2]), 4)
    made = _pictures(folder, preset, size=16, dtype="uint8")
    assert made.shape == (4, 3, 16, 16)
    assert np.abs(made.astype(int) - 90).max() <= 1


@pytest.mark.parametrize("preset", ["image-train", "image-eval"])
def test_a_picture_is_turned_as_its_exif_says_before_it_is_cropped(tmp_path: Path, preset: str) -> None:
    halves = np.zeros((120, 60, 3), np.uint8)
    halves[:60] = 255  # the upper half as stored, which is the right one as shown
    turned = Image.Exif()
    turned[0x0112] = 6
    encoded = _saved(Image.fromarray(halves), "JPEG", quality=95, exif=turned)
    whole = {"scale": (1, 1), "ratio": (2, 2), "mirror": 0} if preset == "image-train" else {"shorter": 32}
    made = _pictures(_dataset(tmp_path, lambda _: encoded, 2), preset, size=32, dtype="uint8", **whole)
    assert made[0, :, :, 2:14].max() < 30
    assert made[0, :, :, 18:30].min() > 225


@pytest.mark.parametrize("preset", ["image-train", "image-eval"])
def test_a_very_large_picture_is_made_like_any_other(tmp_path: Path, preset: str) -> None:
    large = _saved(Image.new("RGB", (12_000, 9_000), _COLOUR), "JPEG", quality=95)
    folder = _dataset(tmp_path, lambda record: large if record else _saved(Image.new("RGB", (20, 20), _COLOUR)), 2)
    made = _pictures(folder, preset, size=64, dtype="uint8").astype(int)
    assert np.abs(made - np.array(_COLOUR)[None, :, None, None]).max() <= 3


@pytest.mark.parametrize(
    ("preset", "arguments", "said"),
    [
        ("image-train", {"scale": (0.5, 0.2)}, "scale must be two increasing numbers"),
        ("image-train", {"scale": (0, 1)}, "scale must be"),
        ("image-train", {"scale": (0.5, 1.5)}, "scale must be"),
        ("image-train", {"scale": 0.5}, "scale must be"),
        ("image-train", {"scale": (0.5,)}, "scale must be"),
        ("image-train", {"ratio": (0, 1)}, "ratio must be two increasing numbers"),
        ("image-train", {"ratio": (1, float("inf"))}, "ratio must be"),
        ("image-train", {"ratio": "3"}, "ratio must be"),
        ("image-train", {"mirror": 1.5}, r"mirror must be a probability in \[0, 1\], got 1.5"),
        ("image-train", {"mirror": float("nan")}, "mirror must be"),
        ("image-train", {"mirror": "yes"}, "mirror must be"),
        ("image-eval", {"size": 64, "shorter": 32}, "shorter must be at least the size 64, got 32"),
        ("image-eval", {"shorter": 300.5}, "shorter must be a whole number"),
        ("image-eval", {"mean": (0.5,)}, "mean and std must be three numbers"),
        ("image-train", {"mean": (0.5, 0.5, float("nan"))}, "mean and std must be three numbers"),
        ("image-eval", {"std": (0.5, 0.5, 0)}, "std above 0"),
        ("image-train", {"size": 0}, "size must be a whole number of pixels"),
        ("image-train", {"size": (32, 32)}, "size must be a whole number of pixels"),
        ("image-eval", {"size": True}, "size must be a whole number of pixels"),
        ("image-eval", {"interpolation": "best"}, "interpolation must be one of nearest, linear"),
        ("image-eval", {"dtype": "int8"}, 'dtype must be "float", "float16" or "uint8"'),
        ("image-eval", {"decoder": "tpu"}, 'decoder must be "cpu" or "mixed"'),
        ("image-eval", {"mirror": 0.5}, "mirror"),
        ("image-eval", {"label": ""}, "inputs must be called"),
        ("image-eval", {"device_id": 0}, "device_id must be given to the loader, as device="),
        ("image-best", {}, "must be one of image-train, image-eval"),
    ],
)
def test_options_that_cannot_be_are_refused_when_the_loader_is_made(
    tmp_path: Path, preset: str, arguments: dict[str, Any], said: str
) -> None:
    folder = _dataset(tmp_path, lambda _: b"", records=2)
    with pytest.raises(ConfigError, match=said):
        _loader(folder, preset, **arguments)
