"""Generated tables in a Markdown page of results.

Covers: replacing a block of the page with the output of a benchmark. Does not cover: the text
around the block.
"""

import re
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError

__all__ = ["check_page", "put_into"]

_BLOCK: Final = re.compile(r"(?<=^```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def check_page(path: Path) -> None:
    """Raise where `put_into` would, as far as this can be seen without writing."""
    _change(path, "", write=False)


def put_into(path: Path, tables: str) -> None:
    """Replace the first text block of the page at `path` with the tables.

    Raises:
        ConfigError: the page has no such block, or cannot be read or written.
    """
    _change(path, tables, write=True)


def _change(path: Path, tables: str, *, write: bool) -> None:
    try:
        page = path.read_text(encoding="utf-8")
        block = _BLOCK.search(page)
        if block is None:
            raise ConfigError(f"{path}: must have a block for tables, which begins with ```text on a line of its own")
        if write:
            changed = f"{page[: block.start()]}{tables.rstrip()}\n{page[block.end() :]}"
            path.write_text(changed, encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path}: must be a page that can be read and written: {error}") from error
