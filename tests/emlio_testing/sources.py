"""The records of a source as a conversion gets them."""

from emlio.example import parse_example
from emlio.prepare.sources.record_source import RecordSource
from emlio.prepare.targets.example_form import example_record

__all__ = ["features_of"]


def features_of(source: RecordSource, place: int) -> dict[str, object]:
    """Return the features of a record in plain values."""
    record = b"".join(example_record(source.record(place)).parts)
    return {
        name: [bytes(value) if isinstance(value, memoryview) else value for value in values]
        for name, values in parse_example(record).items()
    }
