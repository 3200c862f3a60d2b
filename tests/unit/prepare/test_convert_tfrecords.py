import gzip
import os
import zlib
from pathlib import Path

import pytest

from emlio.errors import DatasetError
from emlio.prepare.sources.choice import guess_kind
from emlio.prepare.sources.tfrecord_files import TfrecordFiles
from emlio.prepare.targets.example_form import example_record
from emlio_testing.datasets import write_tfrecord


def _bytes(source: TfrecordFiles, place: int) -> bytes:
    return b"".join(example_record(source.record(place)).parts)


class TestTfrecordFiles:
    @pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress], ids=["plain", "gzip", "zlib"])
    def test_records_are_copied_as_they_are(self, tmp_path: Path, pack: object) -> None:
        records = [bytes([number]) * (number * 1000) for number in range(20)]
        plain = tmp_path / "plain"
        write_tfrecord(plain, records)
        packed = tmp_path / "in.tfrecord"
        packed.write_bytes(pack(plain.read_bytes()))  # type: ignore[operator]
        source = TfrecordFiles(packed, tmp_path / "unpacked")
        assert [_bytes(source, place) for place in range(20)] == records
        assert source.key(3) == f"{packed}: record 3"
        source.close()
        source.close()
        assert not (tmp_path / "unpacked").exists()

    def test_gzip_members_put_one_after_the_other_are_all_read(self, tmp_path: Path) -> None:
        write_tfrecord(tmp_path / "one", [b"1"])
        write_tfrecord(tmp_path / "two", [b"2"])
        packed = b"".join(gzip.compress((tmp_path / name).read_bytes()) for name in ("one", "two"))
        (tmp_path / "in.tfrecord.gz").write_bytes(packed)
        source = TfrecordFiles(tmp_path / "in.tfrecord.gz", tmp_path / "unpacked")
        assert [_bytes(source, place) for place in range(2)] == [b"1", b"2"]
        source.close()

    @pytest.mark.parametrize("size", [376, 24184, 35615])
    def test_a_record_whose_length_looks_like_a_compressed_files_beginning_is_read(
        self, tmp_path: Path, size: int
    ) -> None:
        write_tfrecord(tmp_path / "a.tfrecord", [bytes(size)])
        assert guess_kind(tmp_path) == "tfrecord"
        source = TfrecordFiles(tmp_path, tmp_path / "unpacked")
        assert _bytes(source, 0) == bytes(size)

    def test_a_compressed_file_cut_after_a_whole_record_is_refused(self, tmp_path: Path) -> None:
        write_tfrecord(tmp_path / "plain", [b"1" * 100])
        packer = zlib.compressobj()
        packed = packer.compress((tmp_path / "plain").read_bytes()) + packer.flush(zlib.Z_FULL_FLUSH)
        (tmp_path / "in.tfrecord.z").write_bytes(packed)
        with pytest.raises(DatasetError, match="ends after 116 B"):
            TfrecordFiles(tmp_path / "in.tfrecord.z", tmp_path / "unpacked")

    def test_what_compresses_a_thousandfold_is_unpacked_whole(self, tmp_path: Path) -> None:
        write_tfrecord(tmp_path / "plain", [bytes(5_000_001)])
        (tmp_path / "in.tfrecord.gz").write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
        source = TfrecordFiles(tmp_path / "in.tfrecord.gz", tmp_path / "unpacked")
        assert source.listing.sizes_bytes.tolist() == [5_000_017]
        source.close()

    def test_numbers_restart_in_each_file(self, tmp_path: Path) -> None:
        write_tfrecord(tmp_path / "a.tfrecord", [b"1", b"2"])
        write_tfrecord(tmp_path / "b.tfrecord", [b"3", b"4"])
        source = TfrecordFiles(tmp_path, tmp_path / "unpacked")
        assert source.key(3) == f"{tmp_path / 'b.tfrecord'}: record 1"

    def test_a_bad_checksum_is_found_when_the_record_is_copied(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tfrecord"
        write_tfrecord(path, [b"12345"])
        content = bytearray(path.read_bytes())
        content[13] ^= 1
        path.write_bytes(content)
        with pytest.raises(DatasetError, match="checksum"):
            TfrecordFiles(path, tmp_path / "unpacked").record(0)

    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
    def test_a_cut_or_broken_compressed_file_is_refused_and_leaves_nothing(self, tmp_path: Path, pack: object) -> None:
        write_tfrecord(tmp_path / "plain", [os.urandom(5000) for _ in range(10)])
        packed = bytearray(pack((tmp_path / "plain").read_bytes()))  # type: ignore[operator]
        for broken in (packed[:-2000], packed[:100] + b"\xff" * 100 + packed[200:]):
            (tmp_path / "in.tfrecord.gz").write_bytes(broken)
            with pytest.raises(DatasetError):
                TfrecordFiles(tmp_path / "in.tfrecord.gz", tmp_path / "unpacked")
            assert not (tmp_path / "unpacked").exists()
