"""Pictures inside records that are copied unchanged, as those of TFRecord files are.

Covers: which features hold pictures, judged by a few of the records; whether a record's can be decoded. Does not cover:
decoding one (emlio.images.decoding), pictures that are items themselves (emlio.prepare.convert).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from emlio.errors import DatasetError
from emlio.images.decoding import decoding_fault
from emlio.images.header import NOT_DECODED, picture_extension
from emlio.prepare.sample import Sample
from emlio.prepare.sources.record_source import RecordSource
from emlio.reading.pictures import Value, picture_features, values_of_record
from emlio.reading.random_reader import spread

__all__ = ["ExamplePictures"]

_SAMPLED: Final = 30


class ExamplePictures:
    """The pictures in the records of one source. Thread-safe."""

    def __init__(self, source: RecordSource) -> None:
        """Read a few records to learn which features hold pictures; no feature, if records are not copied."""
        self._features = picture_features(_sampled(source))

    def check(self, sample: Sample) -> None:
        """Decode the pictures of a record.

        Raises:
            DatasetError: one cannot be decoded.
        """
        if sample.record is None or not self._features:
            return
        for name, value in values_of_record(memoryview(sample.record)):
            if name not in self._features or picture_extension(value) in NOT_DECODED:
                continue
            fault = decoding_fault(value)
            if fault is not None:
                raise DatasetError(f"{name}: {fault}; --check header takes it all the same")


def _sampled(source: RecordSource) -> Iterator[Sequence[Value]]:
    for place in spread(len(source.listing.sizes_bytes), _SAMPLED):
        with suppress(DatasetError):  # raised, or listed, when the record is copied
            record = source.record(place).record
            if record is None:
                return
            yield values_of_record(memoryview(record))
