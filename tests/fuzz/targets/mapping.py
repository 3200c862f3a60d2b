"""The JSON beside a shard."""

from emlio.errors import DatasetError
from emlio.formats.tfrecord.mapping import format_mapping, parse_mapping
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """A mapping is refused or can be written again."""
    mapping = parse_mapping(data, "fuzzed")
    assert parse_mapping(format_mapping(mapping), "again") == mapping
    assert "/" not in mapping.file
    mapping.file.encode()


TARGET = Target(
    fuzz=fuzz,
    raises=(DatasetError,),
    tokens=(
        b'"shard_index": ',
        b'"file": "',
        b'"label_counts": {',
        b'"features": {',
        b'"shape": [',
        b'"kind": "int64"',
        b"\\ud800",
        b"\\u0000",
        b"[" * 64,
        b"9" * 40,
        b"1e400",
        b"-1",
        b"null",
    ),
)
