import hashlib
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from emlio.cli import main
from emlio.draws import draw, random_bytes
from emlio.example import parse_example
from emlio.formats.tfrecord.mapping import read_mapping
from emlio.prepare.synth import SynthOptions, synthesise
from emlio_testing.datasets import read_tfrecords
from emlio_testing.written_datasets import files_of


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synth") / "images"
    synthesise(SynthOptions(records=30, classes=4, shard_bytes=2_000_000), out)
    return out


class TestImages:
    def test_every_record_is_a_jpeg_of_the_size_it_says(self, images: Path) -> None:
        records = read_tfrecords(images)
        assert len(records) == 30
        for number, record in enumerate(records):
            features = parse_example(record)
            with Image.open(io.BytesIO(features["image/encoded"][0])) as image:  # type: ignore[arg-type]
                image.load()
                assert image.size == (500, 375)
                assert image.info["comment"] == b"emlio synthetic record %012d" % number
            assert bytes(features["image/filename"][0]) == b"synthetic_%012d.JPEG" % number  # type: ignore[arg-type]
            assert features["image/width"] == [500]

    def test_sizes_are_like_those_of_photographs(self, images: Path) -> None:
        sizes = np.array([len(record) for record in read_tfrecords(images)])
        assert 75_000 < sizes.mean() < 130_000
        assert 0.15 < sizes.std() / sizes.mean() < 0.6

    def test_the_spectrum_falls_like_that_of_photographs(self, images: Path) -> None:
        slopes = []
        for record in read_tfrecords(images)[:12]:
            with Image.open(io.BytesIO(parse_example(record)["image/encoded"][0])) as image:  # type: ignore[arg-type]
                grey = np.asarray(image.convert("L"), dtype=float)
            window = np.outer(np.hanning(grey.shape[0]), np.hanning(grey.shape[1]))
            power = np.abs(np.fft.fft2((grey - grey.mean()) * window)) ** 2
            frequency = np.hypot(np.fft.fftfreq(grey.shape[0])[:, None], np.fft.fftfreq(grey.shape[1])[None])
            edges = np.geomspace(0.01, 0.45, 10)
            means = [power[(frequency >= low) & (frequency < high)].mean() for low, high in pairwise(edges)]
            slopes.append(np.polyfit(np.log(edges[:-1]), np.log(means), 1)[0])
        assert -3.2 < np.mean(slopes) < -1.8

    def test_mappings_name_the_labels(self, images: Path) -> None:
        mapping = read_mapping(images / "mapping_shard_00000.json")
        assert mapping.label_names
        assert mapping.label_names.items() <= {str(label): f"class {label}" for label in range(4)}.items()
        assert mapping.features.keys() == parse_example(read_tfrecords(images)[0]).keys()

    def test_each_picture_belongs_to_one_class_as_long_as_there_are_enough(self, images: Path) -> None:
        classes: dict[bytes, set[int]] = {}
        for record in read_tfrecords(images):
            features = parse_example(record)
            pixels = bytes(features["image/encoded"][0])[-500:]  # type: ignore[arg-type]
            classes.setdefault(pixels, set()).add(int(features["image/class/label"][0]))
        assert set(map(len, classes.values())) == {1}
        assert set.union(*classes.values()) == {0, 1, 2, 3}


class TestOpaqueAndExample:
    def test_opaque_records_begin_with_their_number_and_have_the_size_asked_for(self, tmp_path: Path) -> None:
        synthesise(SynthOptions(kind="opaque", records=500, record_bytes=3000, shard_bytes=300_000), tmp_path / "out")
        records = read_tfrecords(tmp_path / "out")
        assert [int.from_bytes(record[:8], "little") for record in records] == list(range(500))
        assert set(map(len, records)) == {3000}
        assert len({record[8:] for record in records}) == 500
        assert read_mapping(tmp_path / "out" / "mapping_shard_00000.json").features == {}

    def test_spread_sizes_lie_evenly_around_the_mean(self, tmp_path: Path) -> None:
        synthesise(SynthOptions(kind="opaque", records=2000, record_bytes=1000, spread=0.5), tmp_path / "out")
        sizes = np.array([len(record) for record in read_tfrecords(tmp_path / "out")])
        assert 500 <= sizes.min() < 520
        assert 1480 < sizes.max() <= 1500
        assert abs(sizes.mean() - 1000) < 25

    def test_examples_carry_number_and_label(self, tmp_path: Path) -> None:
        synthesise(SynthOptions(kind="example", records=400, classes=300, spread=0.2), tmp_path / "out")
        labels = []
        for number, record in enumerate(read_tfrecords(tmp_path / "out")):
            features = parse_example(record)
            assert features.keys() == {"image/class/label", "image/encoded"}
            encoded = bytes(features["image/encoded"][0])  # type: ignore[arg-type]
            assert int.from_bytes(encoded[:8], "little") == number
            assert 2400 <= len(encoded) <= 3600
            labels.append(int(features["image/class/label"][0]))
        mapping = read_mapping(tmp_path / "out" / "mapping_shard_00000.json")
        assert mapping.label_counts == {str(label): labels.count(label) for label in sorted(set(labels))}
        assert max(labels) > 127  # whose number takes two bytes

    @pytest.mark.parametrize("record_bytes", [8, 9, 17_000_000])
    def test_records_smaller_and_larger_than_the_pool_are_made(self, tmp_path: Path, record_bytes: int) -> None:
        synthesise(SynthOptions(kind="opaque", records=2, record_bytes=record_bytes), tmp_path / "out")
        assert [len(record) for record in read_tfrecords(tmp_path / "out")] == [record_bytes] * 2

    @pytest.mark.parametrize("kind", ["opaque", "example", "images"])
    def test_a_size_is_met_closely(self, tmp_path: Path, kind: str) -> None:
        words = ["synth", str(tmp_path / "out"), "--kind", kind, "--size", "3MB", "--image-size", "200x150"]
        assert main(words) == 0
        total = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.tfrecord"))
        assert 2_700_000 < total < 3_300_000


class TestDeterminism:
    @pytest.mark.parametrize("kind", ["opaque", "example", "images"])
    def test_the_bytes_do_not_depend_on_the_workers(self, tmp_path: Path, kind: str) -> None:
        for name, workers in (("one", 1), ("many", 4)):
            synthesise(
                SynthOptions(kind=kind, records=40, image_size=(64, 48), shard_bytes=20_000, workers=workers),  # type: ignore[arg-type]
                tmp_path / name,
            )
        assert files_of(tmp_path / "one") == files_of(tmp_path / "many")
        assert len(list((tmp_path / "one").glob("*.tfrecord"))) > 1

    def test_another_seed_makes_other_bytes(self, tmp_path: Path) -> None:
        for seed in (0, 1):
            synthesise(SynthOptions(kind="example", records=40, seed=seed), tmp_path / str(seed))
        first, second = read_tfrecords(tmp_path / "0"), read_tfrecords(tmp_path / "1")
        assert not set(first) & set(second)

    def test_the_bytes_are_those_of_every_release(self, tmp_path: Path) -> None:
        digests = {}
        for kind in ("opaque", "example"):
            synthesise(SynthOptions(kind=kind, records=100, record_bytes=500, spread=0.3, seed=5), tmp_path / kind)  # type: ignore[arg-type]
            digests[kind] = hashlib.blake2b(b"".join(read_tfrecords(tmp_path / kind)), digest_size=8).hexdigest()
        assert digests == {"opaque": "f89ab1f5f8aa6216", "example": "9b82d19e7745947a"}

    def test_draws_for_different_seeds_and_purposes_have_nothing_in_common(self) -> None:
        numbers = np.arange(10_000, dtype=np.int64)
        words = [draw(purpose, seed, numbers) for purpose in ("a", "b") for seed in (0, 1, 2)]
        assert len(np.unique(np.concatenate(words))) == 60_000
        bits = np.unpackbits(words[0].view(np.uint8)).reshape(-1, 64).mean(axis=0)
        assert 0.47 < bits.min() <= bits.max() < 0.53
        assert random_bytes("a", 0, 16) != random_bytes("a", 1, 16)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--records", "0"], "--records must be from 1 to 1,000,000,000, got 0"),
        (["--size", "much"], "--size must be a size of 0 or more"),
        (["--records", "1", "--image-size", "500"], "--image-size must be width and height"),
        (["--records", "1", "--image-size", "500x7"], "--image-size must be from 8x8 to 65000x65000 pixels, got 500x7"),
        (["--records", "1", "--record-size", "1kB"], "--record-size and --spread are for --kind opaque and example"),
        (
            ["--records", "1", "--kind", "opaque", "--record-size", "7"],
            "--record-size must be from 8 B to 1 GiB, got 7 B",
        ),
        (["--records", "1", "--kind", "opaque", "--spread", "1.5"], "--spread must be in [0, 1], got 1.5"),
        (["--records", "1", "--classes", "0"], "--classes must be from 1 to 1,000,000, got 0"),
        (["--records", "1", "--workers", "0"], "--workers must be at least 1"),
        (["--records", "1", "--kind", "opaque", "--shard-size", "1"], "at least 1024 bytes"),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["synth", str(tmp_path / "out"), *words]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("emlio synth: error: ")
    assert message in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()
