"""docs/reference/address.md: every address of the page is one, and its options are those that there are."""

import re
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio.formats.folders.names import CHOOSING
from emlio.formats.registry import FORMATS
from emlio.keys.curve import KeyPair
from emlio.receiver.addresses.address import DEFAULT_PORT, Address

_TEXT = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "address.md").read_text(encoding="utf-8")
_FORMS, _OPTIONS = (_TEXT.partition(f"## {title}")[2].partition("\n## ")[0] for title in ("Forms", "Options"))


def _cells(table: str, place: int) -> list[str]:
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row[place])]


_ADDRESSES = _cells(_FORMS, 0)


@pytest.mark.parametrize("text", _ADDRESSES, ids=range(len(_ADDRESSES)))
def test_each_address_of_the_page_is_one(text: str) -> None:
    found = Address.parse(text.replace("KEY@", f"{KeyPair.make().public}@"))
    assert bool(found.peers) == text.startswith("emlio://")
    assert bool(found.options) == any(f"{option}=" in text for option in ("format", *CHOOSING))
    if text == "emlio://store1/imagenet":
        assert (found.peers[0].port, found.dataset) == (DEFAULT_PORT, "imagenet")


def test_every_option_of_a_format_is_on_the_page() -> None:
    known = {option for one in FORMATS for option in one.options} | {"format", *CHOOSING}
    of_buckets = {"endpoint", "region", "allow_http", "anonymous", "virtual_hosted", "account_name", "connections"}
    assert set(_cells(_OPTIONS, 0)) == known | of_buckets


def test_daemons_take_no_options_in_an_address() -> None:
    with pytest.raises(ConfigError, match="an emlio:// address takes no options"):
        Address.parse("emlio://store1/text?format=tokens")


def test_a_text_without_a_slash_that_names_no_directory_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no such directory"):
        Address.parse("imagenet-that-is-not-here")
