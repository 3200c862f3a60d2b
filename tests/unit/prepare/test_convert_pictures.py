"""Pictures that training could not decode are found when they are converted."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from emlio import EmlioLoader
from emlio.errors import ConfigError, DatasetError
from emlio.example import encode_example
from emlio.images import decoding
from emlio.images.decoding import as_png, decoding_fault
from emlio.prepare.convert import convert
from emlio.prepare.convert_options import ConvertOptions
from emlio_testing.datasets import write_tfrecord
from emlio_testing.loader_arguments import loader_arguments

_PIXELS = np.random.default_rng(1).integers(0, 255, (64, 80, 3), np.uint8)


def _encoded(form: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.fromarray(_PIXELS).convert(mode).save(file, form)
    return file.getvalue()


def _damaged(data: bytes) -> bytes:
    """A picture that is complete by its headers, with other bytes in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes(octet ^ 0x55 for octet in data[middle : middle + 40]) + data[middle + 40 :]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pictures" / "class"
    made.mkdir(parents=True)
    for form, extension in (("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp"), ("BMP", "bmp"), ("TIFF", "tif")):
        (made / f"good.{extension}").write_bytes(_encoded(form))
    return made


def _convert(folder: Path, out: str = "out", **options: object) -> list[str]:
    """Convert, and return what was left out."""
    report = convert(ConvertOptions(source=folder.parent, out=folder.parents[1] / out, **options))  # type: ignore[arg-type]
    return list(report.skipped)


def test_whole_pictures_of_all_kinds_are_taken(folder: Path) -> None:
    assert _convert(folder) == []


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cut.jpg", _encoded("JPEG")[:-400], "must end"),
        ("cut.png", _encoded("PNG")[:-400], "must end"),
        ("hurt.png", _damaged(_encoded("PNG")), "cannot be decoded"),
        ("cut.webp", _encoded("WEBP")[:-60], "must"),
        ("animated.gif", _encoded("GIF"), "this one is a GIF; --transcode makes PNG of it"),
        ("text.jpg", b"not a picture", "not a known image format: 13 bytes that begin with b'not a pictur'"),
    ],
)
def test_a_picture_that_cannot_be_decoded_is_named_or_left_out(
    folder: Path, name: str, content: bytes, reason: str
) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(DatasetError, match=rf"{name}: .*({reason}).*--on-error skip") as caught:
        _convert(folder, "refused")
    assert "0x" not in str(caught.value)
    (skipped,) = _convert(folder, on_error="skip")
    assert name in skipped


def test_headers_alone_let_a_cut_picture_through(folder: Path) -> None:
    (folder / "cut.jpg").write_bytes(_encoded("JPEG")[:-400])
    assert _convert(folder, check="header") == []
    # A run that decodes does not take the shards of one that did not for its own.
    with pytest.raises(ConfigError, match="made from other data or with other options"):
        _convert(folder)


def _shard(path: Path, pictures: list[bytes], name: str = "image/encoded") -> Path:
    path.mkdir(parents=True)
    features = [
        {name: [picture], "note": [b"\xff\xd8\xff" if number == 1 else b"x"]} for number, picture in enumerate(pictures)
    ]
    write_tfrecord(path / "a.tfrecord", [encode_example(one) for one in features])
    return path / "a.tfrecord"


@pytest.mark.parametrize("to", ["tfrecord", "wds"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [(_encoded("JPEG")[:-400], "must end"), (_damaged(_encoded("PNG")), "cannot be decoded"), (b"zero", "not a known")],
)
def test_pictures_in_tfrecord_files_are_decoded(tmp_path: Path, to: str, content: bytes, reason: str) -> None:
    shard = _shard(tmp_path / "in", [_encoded("JPEG")] * 8 + [content, _encoded("GIF")])
    with pytest.raises(DatasetError, match=rf"record 8: image/encoded: .*({reason}).*--check header takes"):
        _convert(shard, "refused", to=to)
    (skipped,) = _convert(shard, on_error="skip", to=to)
    assert f"{shard}: record 8: " in skipped
    if to == "tfrecord":
        assert _convert(shard, "headers", check="header") == []


def test_records_that_are_pictures_are_decoded_and_others_are_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [_encoded("PNG"), _encoded("PNG"), _encoded("PNG")[:-400]])
    with pytest.raises(DatasetError, match=r"record 2: record: .*must end"):
        convert(ConvertOptions(source=tmp_path / "in", out=tmp_path / "out"))
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [b"\xff\xd8\xff", b"1", b"2"])
    assert convert(ConvertOptions(source=tmp_path / "in", out=tmp_path / "other")).records == 3


def test_gifs_become_png_with_the_same_pixels(folder: Path) -> None:
    gif = _encoded("GIF")
    (folder / "a.gif").write_bytes(gif)
    assert _convert(folder, transcode=True) == []
    arguments = loader_arguments(batch_size=6, to="numpy", shuffle=False, drop_last=False)
    with EmlioLoader(str(folder.parents[1] / "out"), **arguments) as loader:
        (batch,) = loader
    at = [bytes(name) for name in batch["image/filename"]].index(b"a.png")
    assert bytes(batch["image/format"][at]) == b"PNG"
    with Image.open(io.BytesIO(bytes(batch["image/encoded"][at]))) as made, Image.open(io.BytesIO(gif)) as source:
        assert np.array_equal(np.asarray(made), np.asarray(source.convert("RGB")))


def test_a_picture_that_claims_too_many_pixels_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_MOST_PIXELS", 64 * 80 - 1)
    assert decoding_fault(_encoded("PNG")) == "must have at most 5,119 pixels to be decoded, has 80 x 64"
    with pytest.raises(DatasetError, match="must have at most 5,119 pixels"):
        as_png(_encoded("GIF"))


def test_without_pillow_headers_are_read_and_nothing_is_transcoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(decoding, "import_module", absent)
    (folder / "cut.jpg").write_bytes(_encoded("JPEG")[:-400])
    assert _convert(folder) == []
    with pytest.raises(ConfigError, match='--transcode requires Pillow: pip install "pillow'):
        _convert(folder, transcode=True)
    with pytest.raises(ConfigError, match="requires Pillow"):
        decoding_fault(_encoded("PNG"))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_png_of_any_mode_keeps_its_pixels(mode: str) -> None:
    picture = Image.fromarray(_PIXELS).convert(mode) if mode != "I;16" else Image.new("I;16", (4, 4), 300)
    file = io.BytesIO()
    picture.save(file, "PNG")
    with Image.open(io.BytesIO(as_png(file.getvalue()))) as made:
        assert np.array_equal(np.asarray(made), np.asarray(picture.convert("RGB") if mode == "P" else picture))


def test_no_message_names_an_object_in_memory() -> None:
    with pytest.raises(
        DatasetError, match=r"is no picture that Pillow knows, 12 bytes that begin with b'no picture!!'"
    ):
        as_png(b"no picture!!")
