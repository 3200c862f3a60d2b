"""Opening a dataset of any format.

Covers: whether a folder holds TFRecord files or another format, the options after its path, the
folder of its indexes. Does not cover: either opening (emlio.shards.tfrecord_dataset,
emlio.shards.ranged_dataset).
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from emlio.errors import ConfigError
from emlio.formats.contents import TFRECORD
from emlio.shards.dataset import Dataset
from emlio.shards.discover import has_shards, open_folder
from emlio.shards.ranged_dataset import open_ranges
from emlio.shards.store import default_cache_dir
from emlio.shards.tfrecord_dataset import open_tfrecords

__all__ = ["DatasetPath", "open_dataset"]


@dataclass(frozen=True, slots=True)
class DatasetPath:
    """A dataset's folder, and options that say how to read it.

    Attributes:
        directory: the folder.
        options: "format" and those of the format.
    """

    directory: Path
    options: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @staticmethod
    def parse(text: str) -> "DatasetPath":
        """Parse DIR or DIR?OPTION=VALUE&OPTION=VALUE; a folder whose name has a ? is a folder.

        Raises:
            ConfigError: the options are not of this form.
        """
        directory, question, query = text.partition("?")
        if not question or os.path.isdir(text):
            return DatasetPath(Path(text))
        try:
            options = parse_qsl(query, strict_parsing=True, keep_blank_values=True)
        except ValueError as error:
            raise ConfigError(f"a dataset's options must be OPTION=VALUE&OPTION=VALUE, got {query!r}") from error
        if len({option for option, _ in options}) != len(options):
            raise ConfigError(f"a dataset's options must be given once each, got {query!r}")
        return DatasetPath(Path(directory), dict(options))


def open_dataset(
    name: str,
    directory: Path,
    cache_dir: Path | None = None,
    progress: bool = False,
    *,
    options: Mapping[str, str] | None = None,
    rebuild: bool = False,
    use_mappings: bool = True,
) -> Dataset:
    """Open the dataset in a directory.

    Args:
        name: its name in sessions.
        directory: its directory.
        cache_dir: store new indexes under this folder. By default those of TFRecord files lie
            beside the shards, if their folder can be written, and others in the user's cache folder.
        progress: show a line while indexing.
        options: "format" and those of the format; by default the format is found.
        rebuild: index everything even where there are indexes.
        use_mappings: if False, ignore existing mappings of TFRecord files.

    Raises:
        ConfigError: an option is not known.
        DatasetError: there is no dataset, or a file of it is invalid.
    """
    given = dict(options or {})
    wanted = given.get("format")
    folder = open_folder(directory)
    try:
        if wanted == TFRECORD.format or (wanted is None and not given and has_shards(folder)):
            if given.keys() - {"format"}:
                raise ConfigError(f"{directory}: format {TFRECORD.format} must be given without options, got {given}")
            return open_tfrecords(name, folder, cache_dir, progress, rebuild=rebuild, use_mappings=use_mappings)
        key = hashlib.blake2b(os.fsencode(os.path.abspath(directory)), digest_size=12).hexdigest()
        cache = (default_cache_dir(os.environ) if cache_dir is None else cache_dir) / key
        return open_ranges(name, folder, cache, given, progress=progress, rebuild=rebuild)
    except BaseException:
        folder.close()
        raise
