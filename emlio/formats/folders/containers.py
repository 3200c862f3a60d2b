"""Files that hold many records in a form that is not read, with what to do instead.

Served file by file they would be of no use to most: that must be asked for, with ?format=files.
"""

import re
from dataclasses import dataclass
from typing import Final

from emlio.errors import DatasetError
from emlio.formats.format import Files

__all__ = ["PACKED", "ZARR_MARKS", "refuse_containers"]

PACKED: Final = re.compile(
    r"(?P<plain>.*\.(?:tar|jsonl|ndjson|json|mds|tfrecords?|tfrec|tfr))\.(?:gz|gzip|bz2|xz|zstd?|zlib|br|snappy)"
    r"|(?P<stem>.*)\.t(?:gz|bz2|xz|zst)",
    re.IGNORECASE,
)
"""Names of compressed files that `emlio convert` unpacks: `plain` is the name of what is in it, of tars in short `stem`."""

_TABLE: Final = "Write it as Parquet, for example with pandas: DataFrame.to_parquet"
_ARRAYS: Final = "Write its arrays as .npy files, or its records with emlio.Writer"
_WRITER: Final = "Write its records with emlio.Writer"
_RENAME: Final = "Rename the files"


@dataclass(frozen=True, slots=True)
class _Container:
    """A form: its name, the endings of its files, how they begin, and what to do instead."""

    name: str
    endings: tuple[str, ...]
    begins: tuple[bytes, ...]
    instead: str


_CONTAINERS: Final = (
    _Container("HDF5", (".h5", ".hdf5", ".hdf", ".he5"), (b"\x89HDF\r\n\x1a\n",), _ARRAYS),
    _Container("NetCDF", (".nc",), (b"CDF\x01", b"CDF\x02", b"CDF\x05"), _ARRAYS),
    _Container("MATLAB", (".mat",), (b"MATLAB 5.0 MAT-file",), _ARRAYS),
    _Container("Zarr", (".zarr", ".zarray", ".zattrs", ".zgroup", ".zmetadata"), (), _ARRAYS),
    _Container("Lance", (".lance",), (), _TABLE),
    _Container("LMDB", (".mdb", ".lmdb"), (), _WRITER),
    _Container("FFCV", (".beton",), (), _WRITER),
    _Container("SQLite", (".sqlite", ".sqlite3"), (b"SQLite format 3\0",), _TABLE),
    _Container("Feather version 1", (), (b"FEA1",), _TABLE),
    _Container("ORC", (".orc",), (), _TABLE),
    _Container("Avro", (".avro",), (b"Obj\x01",), _TABLE),
    _Container("Excel", (".xlsx", ".xls"), (), _TABLE),
    _Container("ArrayRecord", (".array_record", ".arrayrecord", ".riegeli"), (), _WRITER),
    _Container("RecordIO", (".rec", ".recordio"), (), _WRITER),
    _Container("pickled", (".pt", ".pth", ".pkl", ".pickle"), (), _ARRAYS),
    _Container("safetensors", (".safetensors",), (), _ARRAYS),
    _Container(
        "CSV", (".csv", ".tsv"), (), f"If its lines name files, convert it: emlio convert TABLE.csv OUT. {_TABLE}"
    ),
    _Container("Parquet", (), (b"PAR1",), f"{_RENAME} so that their names end with .parquet"),
    _Container("Arrow", (), (b"ARROW1",), f"{_RENAME} so that their names end with .arrow"),
    _Container(
        "TFRecord",
        (".tfrecord", ".tfrecords", ".tfrec", ".tfr"),
        (),
        "Give the folder that they lie in; several may be mixed",
    ),
    _Container("zip", (".zip", ".7z", ".rar"), (), "Unpack it"),
)
ZARR_MARKS: Final = frozenset({".zarray", ".zgroup", ".zattrs", ".zmetadata"})
"""Hidden files that only Zarr writes. They are no files of a dataset, but counted among its endings."""

_ZARR: Final = "zarr.json"
_ARRAY: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
_HEAD_BYTES: Final = 64
_INDEX: Final = "index.json"
_LITDATA: Final = re.compile(rb'"chunks"\s*:')
_INDEX_HEAD_BYTES: Final = 4096


def refuse_containers(files: Files, where: str) -> None:
    """Check that files that would be records, each as a whole, are not of a form that holds many records.

    Raises:
        DatasetError: most of them are.
    """
    endings = {ending: count for ending, count in files.endings.items() if ending != ".lock"}
    most = max(endings, key=lambda ending: endings[ending], default="")
    number = next((number for number, name in enumerate(files.names) if name.lower().endswith(most)), 0)
    name = files.names[number]
    kind, instead = _form(files, name, files.read(number, 0, _HEAD_BYTES), most)
    if kind:
        raise DatasetError(
            f"{where}: holds {kind} files, such as {name}, and their records cannot be read. {instead}; to serve each file "
            "as one record, say format=files"
        )


def _form(files: Files, name: str, head: bytes, most: str) -> tuple[str, str]:
    """Return the form of the files, of which most are named as one of them is, and what to do instead; "" for none."""
    marks = {ending for ending in files.endings if ending in ZARR_MARKS}
    if ".json" in files.endings and any(one.endswith(_ZARR) for one in files.names):
        marks.add(".zarr")
    marks |= {part[part.rfind(".") :].lower() for part in name.split("/")[:-1] if "." in part}
    found = next((one for one in _CONTAINERS if marks & {*one.endings}), None)
    if found is None and 2 * files.endings.get(most, 0) < len(files.names):
        return "", ""
    if found is None and PACKED.fullmatch(name):
        return "compressed", "Convert them once: emlio convert DIR OUT"
    if found is None and most == ".json" and _ARRAY.match(head):
        return "JSON array", "Write one object a line, for example with jq -c '.[]' IN.json > OUT.jsonl"
    if found is None and most == ".bin" and _is_litdata(files):
        return "LitData", _WRITER
    found = found or next((one for one in _CONTAINERS if most in one.endings or head.startswith(one.begins)), None)
    return (found.name, found.instead) if found is not None else ("", "")


def _is_litdata(files: Files) -> bool:
    number = next((number for number, name in enumerate(files.names) if name == _INDEX), None)
    return number is not None and _LITDATA.search(files.read(number, 0, _INDEX_HEAD_BYTES)) is not None
