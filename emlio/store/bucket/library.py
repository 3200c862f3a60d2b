"""Requests by the library obstore, which is imported here and nowhere else.

The library finds credentials itself: environment, files named there, metadata of the instance. Only
the files of the AWS command line are read here.
Its errors repeat requests, with access keys and signatures. So only the status, the server's short
code and the kind of a connection error are taken from them, and they are not chained.
"""

import configparser
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import unquote, urlencode
from xml.etree import ElementTree

from typing_extensions import Buffer

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.client import Cause, Client, ObjectStatus, RequestError

__all__ = ["list_pages", "make_client", "profile_settings"]

_OTHER_WAYS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_KEYS: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


_MOST_PAGES: Final = 100_000


_LISTED: Final = 1000
_TIMEOUT: Final = timedelta(seconds=30)
"""For a whole request: at most 4 MiB, so slower than 140 kB/s fails and is tried again."""

_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
_STATUS: Final = re.compile(r"status code: (\d{3})(?: ([A-Za-z][A-Za-z -]{0,40}))?")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9_.]{1,60})</Code>")
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_DENIED: Final = frozenset({401, 403})
_DENIED_CODES: Final = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound", "AccessDenied"})
_NO_CREDENTIALS: Final = re.compile(r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google|InstanceCredential|IMDS")
_SILENT: Final = "the connection was closed without an answer"
_KINDS: Final = (
    ("Timeout", "timed out"),
    ("timed out", "timed out"),
    ("Connection reset", "connection reset"),
    ("connection closed", "connection closed"),
    ("tls handshake eof", _SILENT),
    ("IncompleteMessage", _SILENT),
    ("kind: Connect", "cannot connect"),
)
_NO_HTTP: Final = ("UnexpectedMessage", "Parse(", "InvalidContentType")
_UNREACHED: Final = (
    ("dns error", "the host name cannot be resolved"),
    ("Connection refused", "connection refused"),
)
_ODD_KEY: Final = re.compile(r'[Pp]ath "(.*?)"(?: contained|: Encountered)', re.DOTALL)
_ODD: Final = "InvalidPathError"
"""The library's error for a key that it refuses."""

_MOST_LIST_BYTES: Final = 256 << 20


def make_client(address: ObjectAddress) -> Client:
    """Return a client for an address.

    Raises:
        ConfigError: the library is not installed, or a setting is not valid.
    """
    try:
        import obstore
        from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store
    except ImportError:
        raise ConfigError(
            f"{address}: reading from a bucket requires obstore, which is not installed: {how_to_install('objects')}"
        ) from None
    settings, prefix = address.settings, address.prefix or None
    # Requests are tried again by emlio.store.bucket.requests, which can be stopped meanwhile.
    common: dict[str, Any] = {
        "client_options": {
            "timeout": _TIMEOUT,
            "connect_timeout": _CONNECT_TIMEOUT,
            "allow_http": address.has("allow_http") or address.scheme == "http",
        },
        "retry_config": {"max_retries": 0, "retry_timeout": _TIMEOUT},
    }
    if address.has("anonymous") and not address.listing:
        common["skip_signature"] = True
    store: Any
    given: dict[str, Any]
    try:
        match address.scheme:
            case "s3":
                given = {} if address.has("anonymous") else dict(profile_settings(os.environ))
                given |= {name: settings[name] for name in ("endpoint", "region") if name in settings}
                if "virtual_hosted" in settings:
                    common["virtual_hosted_style_request"] = address.has("virtual_hosted")
                store = S3Store(address.bucket, prefix=prefix, **given, **common)
                return _Bucket(obstore, store, partial(_s3_pages, obstore, S3Store, address, given, common))
            case "gs":
                store = GCSStore(address.bucket, prefix=prefix, **common)
            case "az":
                given = {name: settings[name] for name in ("endpoint", "account_name") if name in settings}
                store = AzureStore(address.bucket, prefix=prefix, **given, **common)
            case _:
                store = HTTPStore.from_url(f"{address.scheme}://{address.bucket}/{address.prefix}", **common)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001  # the library raises errors of many kinds, some with values
        raise ConfigError(
            f"{address}: its settings must be valid, the library refuses them ({type(error).__name__})"
        ) from None
    return _Listed(obstore, store, address.listing) if address.listing else _Bucket(obstore, store)


class _Bucket:
    """See `Client`."""

    def __init__(
        self, library: Any, store: Any, pages: Callable[[str], Iterator[Sequence[ObjectStatus]]] | None = None
    ) -> None:
        """See the class; `pages` lists the objects after one of a name where the library cannot."""
        self._library = library
        self._store = store
        self._pages = pages

    def list(self) -> Iterator[Sequence[ObjectStatus]]:
        """See `Client`."""
        last = ""
        try:
            for chunk in self._library.list(self._store, chunk_size=_LISTED):
                yield [_status(meta["path"], meta) for meta in chunk]
                last = chunk[-1]["path"]
            return
        except Exception as error:  # noqa: BLE001  # see _judged
            if self._pages is None or type(error).__name__ != _ODD:
                raise _judged(error) from None
        yield from self._pages(last)

    def head(self, name: str) -> ObjectStatus:
        """See `Client`."""
        try:
            return _status(name, self._library.head(self._store, name))
        except Exception as error:  # noqa: BLE001  # see _judged
            raise _judged(error) from None

    def get(self, name: str, start: int, end: int) -> tuple[ObjectStatus, Buffer]:
        """See `Client`."""
        try:
            result = self._library.get(self._store, name, options={"range": (start, end)})
            return _status(name, result.meta), result.bytes()
        except Exception as error:  # noqa: BLE001  # see _judged
            raise _judged(error) from None


class _Listed(_Bucket):
    """See `Client`. The names are in a text file; what they are must be asked one by one."""

    def __init__(self, library: Any, store: Any, listing: str) -> None:
        super().__init__(library, store)
        self._listing = listing

    def list(self) -> Iterator[Sequence[ObjectStatus]]:
        """See `Client`."""
        try:
            result = self._library.get(self._store, self._listing)
            size = int(result.meta["size"])
            text = bytes(result.bytes()) if size <= _MOST_LIST_BYTES else b""
        except Exception as error:  # noqa: BLE001  # see _judged
            judged = _judged(error)
            if judged.cause in (Cause.PASSING, Cause.OTHER):
                judged = RequestError(
                    Cause.OTHER if judged.reason == _SILENT else judged.cause,
                    f"{judged.reason}; the address of a daemon would begin with emlio://",
                )
            raise judged from None
        if size > _MOST_LIST_BYTES:
            raise RequestError(Cause.OTHER, f"the list must be at most {_MOST_LIST_BYTES} bytes, has {size}")
        try:
            lines = text.decode().splitlines()
        except UnicodeDecodeError:
            raise RequestError(Cause.OTHER, "the list must be text in UTF-8") from None
        names = dict.fromkeys(name for line in lines if (name := line.strip()) and not name.startswith("#"))
        for name in names:
            if "://" in name or set(name.split("/")) & {"", ".", ".."}:
                raise RequestError(Cause.OTHER, f"the list must hold relative names, one a line, got {name[:200]!r}")
        yield [ObjectStatus(name=name, size_bytes=-1, etag="", modified_s=0) for name in names]


def _s3_pages(
    library: Any, kind: Any, address: ObjectAddress, given: dict[str, Any], common: dict[str, Any], after: str
) -> Iterator[Sequence[ObjectStatus]]:
    """Yield the objects of S3 with keys that the library refuses; it only signs the requests."""
    from urllib.request import urlopen  # takes longer to import than all else here

    base = given.get("endpoint", "").rstrip("/")
    if not base:
        region = (
            given.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
        )
        base = f"https://{address.bucket}.s3.{region}.amazonaws.com"
    elif not address.has("virtual_hosted"):
        base = f"{base}/{address.bucket}"
    others = {name: value for name, value in given.items() if name != "endpoint"}

    def fetch(parameters: Mapping[str, str]) -> bytes:
        # The library adds a name to what it takes for a place: it becomes the value of a parameter that has no meaning.
        endpoint = f"{base}?{urlencode(parameters)}&emlio="
        try:
            url = f"{endpoint}/"
            if not address.has("anonymous"):
                options = {**common, "virtual_hosted_style_request": True}
                store = kind(address.bucket, endpoint=endpoint, **others, **options)
                url = library.sign(store, "GET", "list", _TIMEOUT)
            with urlopen(url, timeout=_TIMEOUT.total_seconds()) as answer:  # the scheme is the address's
                return bytes(answer.read(_MOST_LIST_BYTES))
        except HTTPError as error:
            text = error.read(_MOST_LIST_BYTES).decode(errors="replace")
            raise _judged(OSError(f"status code: {error.code} {error.reason} {text}")) from None
        except Exception as error:  # noqa: BLE001  # see _judged
            raise _judged(error) from None

    return list_pages(fetch, address.prefix, after)


def _status(name: str, meta: Any) -> ObjectStatus:
    return ObjectStatus(
        name=name,
        size_bytes=int(meta["size"]),
        etag=meta["e_tag"] or "",
        modified_s=int(meta["last_modified"].timestamp()),
    )


def _judged(error: Exception) -> RequestError:
    """Return the error without the vendor's text, of which only harmless words are kept."""
    if isinstance(error, RequestError):
        return error
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is not None and _NO_CREDENTIALS.search(text) is None:
        number, short = int(status[1]), code[1] if code is not None else ""
        words = f"the server answered {number} {(status[2] or '').strip()}".rstrip() + (f" ({short})" if short else "")
        if number in _DENIED or short in _DENIED_CODES:
            return RequestError(Cause.DENIED, words)
        if number == 404:
            return RequestError(Cause.ABSENT, words)
        return RequestError(Cause.PASSING if number in _PASSING else Cause.OTHER, words)
    if _NO_CREDENTIALS.search(text) is not None:
        return RequestError(Cause.DENIED, "no credentials were found, neither in the environment nor from the instance")
    kind = type(error).__name__
    if kind == _ODD:
        odd = _ODD_KEY.search(text)
        return RequestError(
            Cause.OTHER,
            f"the key {odd[1] if odd else ''!r} has an empty part, a part . or .., or a control character, and no dataset "
            "can hold it. Rename or remove such objects, or give a prefix without them",
        )
    if kind == "NotSupportedError":
        return RequestError(
            Cause.OTHER, "the server does not send parts of a file (HTTP Range), which reading records needs"
        )
    if isinstance(error, FileNotFoundError):
        return RequestError(Cause.ABSENT, "the server knows no such object")
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return RequestError(Cause.DENIED, "the server denied access")
    if isinstance(error, TimeoutError | ConnectionError) or "HTTP error" in text or "HttpError" in text:
        unreached = next((words for mark, words in _UNREACHED if mark in text), None)
        if unreached is not None:
            return RequestError(Cause.UNREACHED, unreached)
        if any(mark in text for mark in _NO_HTTP):
            return RequestError(Cause.OTHER, "the answer is not one of a web server")
        return RequestError(Cause.PASSING, next((words for mark, words in _KINDS if mark in text), "connection lost"))
    return RequestError(Cause.OTHER, f"the request failed ({kind})")


def list_pages(
    fetch: Callable[[Mapping[str, str]], bytes], prefix: str, after: str
) -> Iterator[Sequence[ObjectStatus]]:
    """Yield the objects below a prefix, in the order of their keys, from the server's own answers.

    A key of S3 may have an empty part, a part . or .., or control characters. The library then lists
    nothing, so the pages are read here; such keys are among them.

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
            yield [_listed_status(found, begin) for found in page.iterfind("{*}Contents")]
        except (ElementTree.ParseError, ValueError) as error:
            raise RequestError(Cause.OTHER, "the server's list of objects is not valid") from error
        token = page.findtext("{*}NextContinuationToken")
        if not token:
            return
        place = {"continuation-token": token}
    raise RequestError(Cause.OTHER, f"the server's list of objects has more than {_MOST_PAGES:,} pages")


def _listed_status(found: ElementTree.Element, begin: str) -> ObjectStatus:
    return ObjectStatus(
        name=unquote(found.findtext("{*}Key", ""), errors="surrogateescape").removeprefix(begin),
        size_bytes=int(found.findtext("{*}Size", "")),
        etag=found.findtext("{*}ETag", ""),
        modified_s=int(datetime.fromisoformat(found.findtext("{*}LastModified", "")).timestamp()),
    )


def profile_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the files of the AWS command line say for this process, by the names that the library has for it.

        ~/.aws/credentials    [PROFILE] aws_access_key_id, aws_secret_access_key, aws_session_token
        ~/.aws/config         [profile PROFILE] region

    Profiles that assume a role, log in by SSO or start a program are not read.

    Nothing, if the environment says where credentials come from.

    Raises:
        ConfigError: a file cannot be read, or has no such profile although one is named.
    """
    home = Path(os.path.expanduser("~")) / ".aws"
    named = environment.get("AWS_PROFILE", "")
    profile = named or "default"
    found: dict[str, str] = {}
    config = _section(Path(environment.get("AWS_CONFIG_FILE") or home / "config"), f"profile {profile}", profile)
    if "region" in config and not environment.keys() & {"AWS_REGION", "AWS_DEFAULT_REGION"}:
        found["region"] = config["region"]
    if environment.keys() & set(_OTHER_WAYS):
        return found
    place = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
    section = _section(place, profile)
    found.update({ours: section[theirs] for theirs, ours in _KEYS.items() if theirs in section})
    if named and "access_key_id" not in found:
        raise ConfigError(
            f"AWS_PROFILE must name a profile with keys in {place}, got {named!r}. Profiles of roles and SSO are not "
            "read: put their keys into the environment (aws configure export-credentials --format env)"
        )
    return found


def _section(path: Path, *names: str) -> Mapping[str, str]:
    """Return the first of these sections that the file has."""
    parser = configparser.RawConfigParser()
    try:
        with path.expanduser().open(encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        # The error's text repeats lines of the file.
        raise ConfigError(f"{path}: must be a file of the AWS command line ({type(error).__name__})") from None
    return next((dict(parser[name]) for name in names if parser.has_section(name)), dict[str, str]())
