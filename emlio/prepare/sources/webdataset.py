"""WebDataset: tar files in which the members of one sample share a name up to the first dot.

Covers: uncompressed tars, one or a folder of them. Does not cover: compressed tars, whose members
have no position on disk.

Members become features: the first image of a sample is image/encoded with the features of
emlio.prepare.targets.image_example, `cls` is image/class/label, every other member is a bytes feature named
after its extension ("json", "txt", "seg.png"), unchanged. The sample's name is the feature
`__key__`.
"""

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emlio.errors import DatasetError
from emlio.example import FeatureValue, encode_example
from emlio.images.header import IMAGE_EXTENSIONS
from emlio.prepare.sources.class_names import ClassNames
from emlio.prepare.sources.record_source import Fingerprint, Listing, Record, read_stamped, stamp_of
from emlio.prepare.targets.image_example import image_features

__all__ = ["WebDataset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    tar: int
    name: str
    members: tuple[tuple[str, int, int], ...]
    """Extension, offset in the tar, size."""


class WebDataset:
    """Samples ordered by tar name, then by position in the tar.

    The constructor reads the tars' headers.
    """

    def __init__(self, path: Path, classes: ClassNames | None = None) -> None:
        self._tars = _tars(path)
        self._stamps = [stamp_of(tar) for tar in self._tars]
        self._texts = {} if classes is None else classes.texts
        self._samples: list[_Sample] = []
        fingerprint = Fingerprint("webdataset")
        for number, (tar, stamp) in enumerate(zip(self._tars, self._stamps, strict=True)):
            fingerprint.add(tar.name, stamp.size_bytes, stamp.mtime_ns)
            self._samples.extend(_samples(tar, number))
        for label, text in self._texts.items():
            fingerprint.add(label, text)
        sizes = [sum(size for _, _, size in sample.members) for sample in self._samples]
        self.listing = Listing(
            sizes_bytes=np.array(sizes, dtype=np.int64),
            fingerprint=fingerprint.hexdigest(),
            label_names=self._texts,
        )

    def key(self, place: int) -> str:
        """Return the tar and the sample's name in it."""
        sample = self._samples[place]
        return f"{self._tars[sample.tar]}: {sample.name}"

    def record(self, place: int) -> Record:
        """Read one sample."""
        sample = self._samples[place]
        features: dict[str, FeatureValue] = {"__key__": sample.name}
        label = None
        for extension, offset, size in sample.members:
            content = read_stamped(self._tars[sample.tar], self._stamps[sample.tar], offset, size)
            if extension in IMAGE_EXTENSIONS and "image/encoded" not in features:
                features.update(image_features(content, f"{Path(sample.name).name}.{extension}"))
            elif extension == "cls":
                label = _label(content)
                features["image/class/label"] = label
            else:
                features[extension] = content
        if label is not None and label in self._texts:
            features["image/class/text"] = self._texts[label]
        return Record(parts=(encode_example(features),), label=label)

    def close(self) -> None:
        """Do nothing, since no resources are held."""


def _label(content: bytes) -> int:
    try:
        return int(content.decode("ascii"))
    except ValueError as error:
        raise DatasetError(f"its .cls must be a whole number, got {content[:40]!r}") from error


def _tars(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    try:
        found = sorted(entry for entry in path.iterdir() if entry.suffix == ".tar")
    except OSError as error:
        raise DatasetError(f"{path}: cannot be listed: {error.strerror or error}") from error
    if not found:
        raise DatasetError(f"{path}: must hold .tar files, holds none")
    return found


def _samples(tar: Path, number: int) -> list[_Sample]:
    samples: list[_Sample] = []
    name: str | None = None
    members: dict[str, tuple[str, int, int]] = {}

    def finish() -> None:
        if name is not None and members:
            samples.append(_Sample(tar=number, name=name, members=tuple(members.values())))

    try:
        with tarfile.open(tar, "r:") as archive:
            while (member := archive.next()) is not None:
                # The module keeps every member it has read, which would take gigabytes for millions
                # of members.
                vars(archive)["members"].clear()
                folder, file = os.path.split(member.name)
                stem, _, extension = file.partition(".")
                if not member.isreg() or not stem or not extension:
                    continue
                if member.issparse():
                    raise DatasetError(
                        f"{tar}: {member.name}: sparse members are not supported, pack the file without --sparse"
                    )
                sample = f"{folder}/{stem}" if folder else stem
                if sample != name:
                    finish()
                    name, members = sample, {}
                extension = extension.lower()
                if extension in members:
                    raise DatasetError(
                        f"{tar}: {member.name}: a sample must have each extension once, this one is repeated"
                    )
                members[extension] = (extension, member.offset_data, member.size)
            finish()
            end = archive.offset
        # The module takes a broken header in the middle for the end, without an error.
        with tar.open("rb") as raw:
            raw.seek(end)
            if any(raw.read(tarfile.BLOCKSIZE)):
                raise DatasetError(
                    f"{tar}: must have a member header or the end mark at byte {end}, has neither: the file is corrupt"
                )
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DatasetError(f"{tar}: must be an uncompressed tar file: {error}") from error
    return samples
