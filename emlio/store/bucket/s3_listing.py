"""Listing a bucket of S3 whose keys the library refuses, page by page, from the server's own answers.

A key may have an empty part, a part . or .., or control characters. The library then lists nothing, so
the pages are read here; such keys are among them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree

from emlio.store.bucket.client import Cause, ObjectStatus, RequestError

__all__ = ["list_pages"]

_MOST_PAGES: Final = 100_000


def list_pages(
    fetch: Callable[[Mapping[str, str]], bytes], prefix: str, after: str
) -> Iterator[Sequence[ObjectStatus]]:
    """Yield the objects below a prefix, in the order of their keys.

    Args:
        fetch: returns the answer to a request for a list with these parameters.
        prefix: without a slash at its end; may be empty.
        after: the name of the last object that is known already; "" for none.

    Raises:
        RequestError: the server does not answer, or with something else than a list.
    """
    begin = f"{prefix}/" if prefix else ""
    place = {"start-after": begin + after} if after else {}
    for _ in range(_MOST_PAGES):
        answer = fetch({"list-type": "2", "encoding-type": "url", "prefix": begin, **place})
        try:
            page = ElementTree.fromstring(answer)
            yield [_status(found, begin) for found in page.iterfind("{*}Contents")]
        except (ElementTree.ParseError, ValueError) as error:
            raise RequestError(Cause.OTHER, "the server's list of objects is not valid") from error
        token = page.findtext("{*}NextContinuationToken")
        if not token:
            return
        place = {"continuation-token": token}
    raise RequestError(Cause.OTHER, f"the server's list of objects has more than {_MOST_PAGES:,} pages")


def _status(found: ElementTree.Element, begin: str) -> ObjectStatus:
    return ObjectStatus(
        name=unquote(found.findtext("{*}Key", ""), errors="surrogateescape").removeprefix(begin),
        size_bytes=int(found.findtext("{*}Size", "")),
        etag=found.findtext("{*}ETag", ""),
        modified_s=int(datetime.fromisoformat(found.findtext("{*}LastModified", "")).timestamp()),
    )
