"""Tars: the ranges of their records, the columns of a record, and files that are damaged."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.tar import tars
from emlio_testing.format_files import MemoryFiles, records_in, row_of, tar_of

_MEMBERS = [("a/1.jpg", b"one"), ("a/1.cls", b"3"), ("a/2.jpg", b"x" * 700), ("a/2.cls", b"4")]
_FORM = tars.form(Contents(format="tar"), None)


def _refused(data: bytes) -> str:
    with pytest.raises(DatasetError) as caught:
        records_in(tars, {"a.tar": data})
    assert "a.tar" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("names", "claimed"),
    [
        (["a.tar"], True),
        (["a.TAR", "a.json"], True),
        (["a.tar", "b.jpg", "c.jpg"], False),
        (["a.tar.gz"], False),
        ([], False),
    ],
)
def test_a_folder_is_taken_for_tars_if_half_of_its_files_are(names: list[str], claimed: bool) -> None:
    assert tars.claims(MemoryFiles(dict.fromkeys(names, b""))) is claimed


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_of_one_name_are_a_record(form: int) -> None:
    rows = records_in(tars, {"a.tar": tar_of(_MEMBERS, form)})
    assert rows == [
        {"jpg": b"one", "cls": b"3", "__key__": "a/1"},
        {"jpg": b"x" * 700, "cls": b"4", "__key__": "a/2"},
    ]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_schema_has_the_members_of_the_first_records(form: int) -> None:
    long_name = f"{'f' * 60}/{'n' * 80}"
    files = MemoryFiles(
        {
            "b.tar": tar_of([("1.other", b"")]),
            "a.tar": tar_of(
                [(f"{long_name}.jpg", b"x" * 700), (f"{long_name}.seg.PNG", b""), *_MEMBERS, ("a/2.txt", b"")], form
            ),
        }
    )
    members = ("jpg", "seg.png", "cls", "txt", "other")
    known = {"__key__": FieldType("str"), **{name: FieldType("bytes") for name in members}}
    assert tars.layout(files, {}, "d").schema == known
    # What cannot be read is an error only where the records are looked for.
    for broken in (b"", b"x" * 2000, tar_of(_MEMBERS)[:700]):
        assert "__key__" in tars.layout(MemoryFiles({"a.tar": broken}), {}, "d").schema


def test_presets_find_image_and_label() -> None:
    rows = records_in(tars, {"a.tar": tar_of(_MEMBERS)}, fields=["image/class/label", "image/encoded"])
    assert [(row["image/class/label"], row["image/encoded"][:3]) for row in rows] == [(3, b"one"), (4, b"xxx")]
    with pytest.raises(DatasetError, match=r"its \.cls must be a whole number, got b'dog'"):
        records_in(tars, {"a.tar": tar_of([("1.cls", b"dog")])}, fields=["image/class/label"])


def test_a_member_that_is_missing_is_none() -> None:
    found = records_in(tars, {"a.tar": tar_of([("1.jpg", b""), ("2.png", b"x")])}, fields=["png", "image/class/label"])
    assert [(row["png"], row["image/class/label"]) for row in found] == [(None, None), (b"x", None)]


def test_names_that_are_no_utf8_come_as_they_are() -> None:
    (row,) = records_in(tars, {"a.tar": tar_of([("\udcff/1.jpg", b"x")], tarfile.GNU_FORMAT)})
    assert row["__key__"] == "\udcff/1"


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_that_is_cut_off_anywhere_is_refused(form: int) -> None:
    whole = tar_of([("d" * 120 + "/1.jpg", b"y" * 600), ("d" * 120 + "/1.cls", b"3"), ("2.jpg", b"z" * 30)], form)
    end = len(whole.rstrip(b"\0"))
    end += -end % 512
    for size in [*range(0, end, 100), *range(512, end, 512), end, end + 511]:
        _refused(whole[:size])
    assert len(records_in(tars, {"a.tar": whole[: end + 512]})) == 2


def test_the_message_on_a_missing_end_mark_has_a_command_that_helps() -> None:
    whole = tar_of(_MEMBERS)
    end = len(whole.rstrip(b"\0"))
    end += -end % 512
    message = _refused(whole[:end])
    assert message.endswith(f"append the mark: truncate -s {end + 1024} a.tar")
    assert len(records_in(tars, {"a.tar": whole[:end] + bytes(1024)})) == 2


def test_a_changed_byte_in_any_header_is_found() -> None:
    whole = tar_of(_MEMBERS, tarfile.USTAR_FORMAT)
    for header in (0, 1024, 2048, 3584):
        for at in (0, 124, 148, 156, 300):
            damaged = bytearray(whole)
            damaged[header + at] ^= 1
            _refused(bytes(damaged))


def test_checksums_of_signed_bytes_are_taken_as_old_programs_wrote_them() -> None:
    header = bytearray(tar_of([("\u00e9.jpg", b"abc")], tarfile.USTAR_FORMAT))
    header[148:156] = b" " * 8
    signed = sum(byte - 256 if byte > 127 else byte for byte in header[:512])
    header[148:156] = f"{signed:06o}\0 ".encode()
    assert records_in(tars, {"a.tar": bytes(header)}) == [{"jpg": b"abc", "__key__": "\u00e9"}]


@pytest.mark.parametrize("kind", ["sparse", "pax-sparse"])
def test_sparse_members_are_refused(kind: str) -> None:
    info = tarfile.TarInfo("1.bin")
    if kind == "sparse":
        info.type = tarfile.GNUTYPE_SPARSE
    else:
        info.pax_headers = {"GNU.sparse.size": "10", "GNU.sparse.map": "0,0", "GNU.sparse.numblocks": "1"}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    assert "sparse" in _refused(file.getvalue())


def test_a_member_twice_is_refused_by_its_name() -> None:
    message = _refused(tar_of([("1.jpg", b"a"), ("1.cls", b"1"), ("1.jpg", b"b")]))
    assert message == "a.tar: record 0: must have each member once, 1.jpg is there twice"


def test_a_compressed_tar_under_this_name_is_refused() -> None:
    assert "must be an uncompressed tar file" in _refused(gzip.compress(tar_of(_MEMBERS)))


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 5000, b"\xff" * 5000])
def test_what_is_no_tar_is_refused(data: bytes) -> None:
    assert "must be an uncompressed tar file" in _refused(data)


def test_tars_one_after_the_other_are_refused_since_the_second_would_be_lost() -> None:
    first, second = tar_of(_MEMBERS), tar_of([("9.jpg", b"lost")])
    message = _refused(first + second)
    assert f"another one begins at byte {len(first)}" in message
    assert "tar --concatenate" in message
    assert len(records_in(tars, {"a.tar": first + b"padding" * 100})) == 2


def test_a_long_chain_of_long_names_is_refused() -> None:
    header = tarfile.TarInfo("x")
    header.type = tarfile.GNUTYPE_LONGNAME
    block = header.tobuf(tarfile.GNU_FORMAT)
    assert "must be an uncompressed tar file" in _refused(block * 5000)


# ---- what a rank gets -----------------------------------------------------------------------------------------------


def _one(form: int = tarfile.USTAR_FORMAT) -> bytes:
    return tar_of([("1.jpg", b"abc")], form)[: 512 + 3]


def test_a_record_with_a_damaged_header_is_refused_by_the_rank() -> None:
    assert row_of(_FORM, _one()) == {"jpg": b"abc", "__key__": "1"}
    damaged = bytearray(_one())
    damaged[3] ^= 1
    with pytest.raises(DatasetError, match="the tar header at byte 0 must have the checksum"):
        row_of(_FORM, bytes(damaged))


def test_a_record_that_is_cut_off_is_refused_by_the_rank() -> None:
    with pytest.raises(DatasetError, match="must be whole members of a tar, the one at byte 0 ends at 515 of 514"):
        row_of(_FORM, _one()[:-1])


def _resized(size: bytes) -> bytes:
    header = bytearray(_one()[:512])
    header[124:136] = size.ljust(12, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header)


@pytest.mark.parametrize(
    "size", [b"\xff" * 12, b"\xff" * 10 + b"\xfe\x00", b"\x80" + b"\xff" * 11, b"77777777777", b"9"]
)
def test_a_strange_size_is_refused_and_never_read_for_ever(size: bytes) -> None:
    with pytest.raises(DatasetError, match="must be"):
        row_of(_FORM, _resized(size) + bytes(1024))


@pytest.mark.parametrize("size", ["-512", "-1024", "x", "", "1" * 5000])
def test_a_strange_size_in_an_extended_header_is_refused(size: str) -> None:
    record = f" size={size}\n"
    length = len(record) + len(str(len(record) + 4))
    record = f"{len(str(length)) + len(record)}{record}"
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    block = info.tobuf(tarfile.USTAR_FORMAT) + record.encode() + bytes(-len(record) % 512)
    with pytest.raises(DatasetError, match="must be"):
        row_of(_FORM, block + _one())


def test_a_folder_whose_header_has_a_size_is_passed_over() -> None:
    info = tarfile.TarInfo("d")
    info.type, info.size = tarfile.DIRTYPE, 4096
    between = info.tobuf(tarfile.USTAR_FORMAT)
    whole = tar_of([("1.jpg", b"abc")], tarfile.USTAR_FORMAT)[:1024] + between
    whole += tar_of([("1.cls", b"5")], tarfile.USTAR_FORMAT)
    assert records_in(tars, {"a.tar": whole}) == [{"jpg": b"abc", "cls": b"5", "__key__": "1"}]


def test_ranges_never_overlap_and_rise() -> None:
    draw = np.random.default_rng(0)
    members = [(f"{n // 3}.{n % 3}", draw.bytes(int(draw.integers(0, 2000)))) for n in range(90)]
    files = MemoryFiles({"a.tar": tar_of(members)})
    ranges = tars.ranges(files, tars.layout(files, {}, "data").shards[0], b"")
    assert len(ranges.starts) == 30
    assert (ranges.starts[1:] >= ranges.ends[:-1]).all()
