"""The address of a dataset in a bucket.

s3://BUCKET/PREFIX?OPTION=VALUE&OPTION=VALUE        also gs:// and az://
https://HOST/PATH/LIST?OPTION=VALUE                 LIST is a text file of names, one a line
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from emlio.errors import ConfigError

__all__ = ["ObjectAddress"]

_SCHEMES: Final = ("s3", "gs", "az", "http", "https")
_FORM: Final = "must be s3://BUCKET/PREFIX, gs://, az:// or http(s)://HOST/PATH/LIST"
_SETTINGS: Final = frozenset(
    {"account_name", "allow_http", "anonymous", "connections", "endpoint", "region", "virtual_hosted"}
)
_SWITCHES: Final = ("allow_http", "anonymous", "virtual_hosted")
_SECRET: Final = re.compile(
    r"(?:^|[_-])(?:secret|password|passwd|sas|signature|sig|credentials?)(?:[_-]|$)|(?:access|account|api)[_-]?key"
    r"|(?:session|bearer|access|security)[_-]?token|^x-(?:amz|goog|ms)-|^(?:aws|azure|google)_",
    re.IGNORECASE,
)
_PATTERN: Final = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_CONNECTIONS: Final = 64
"""Requests at once. A request of some 100 kB takes about 30 ms in the region of a bucket, so 64 of
them reach 200 MB/s with scattered records, and more than 2 GB/s with long runs."""

_MOST_CONNECTIONS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAddress:
    """A bucket and a prefix in it, or a list behind a web server.

    Attributes:
        scheme: "s3", "gs", "az", "http" or "https".
        bucket: the bucket; for a web server its host and port.
        prefix: the part of the names that all objects share, without a slash at its end; for a web
            server the path of the folder with the list.
        listing: the name of the list in that folder; empty for buckets.
        settings: how to reach it: "endpoint", "region" and so on.
        options: how to read it: "format" and those of the format.
    """

    scheme: str
    bucket: str
    prefix: str = ""
    listing: str = ""
    settings: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    options: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @staticmethod
    def is_one(text: str) -> bool:
        """Return whether a text is meant as such an address."""
        scheme, separator, _ = text.partition("://")
        return bool(separator) and scheme.lower() in _SCHEMES

    @staticmethod
    def parse(text: str) -> "ObjectAddress":
        """Parse an address.

        Raises:
            ConfigError: it has another form, or holds a secret. The error never repeats values.
        """
        scheme, _, rest = text.partition("://")
        scheme = scheme.lower()
        place, question, query = rest.partition("?")
        bucket, _, path = place.partition("/")
        if scheme not in _SCHEMES:
            raise ConfigError(f"an address of objects {_FORM}, got one that begins with {scheme[:20]!r}")
        if "@" in bucket:
            raise ConfigError(
                f"{scheme}://: an address must not hold a name or a password. Credentials come from the environment"
            )
        if not bucket or not text.isprintable() or "#" in bucket:
            raise ConfigError(
                f"an address of objects {_FORM}, got a {scheme}:// address without a valid bucket or host"
            )
        settings, options = _sorted_out(scheme, query) if question else ({}, {})
        if not scheme.startswith("http"):
            path = path.strip("/")
            folder, _, files = path.rpartition("/")
            if _PATTERN.search(files):
                place = f"{scheme}://{bucket}{'/' if folder else ''}{folder}?files={_PATTERN.sub('*', files)}"
                raise ConfigError(f"{scheme}://{bucket}: a prefix must be no pattern, got {path!r}. Say {place!r}")
            if "//" in path:
                raise ConfigError(f"{scheme}://{bucket}: a prefix must not hold an empty part, got {path!r}")
            return ObjectAddress(scheme=scheme, bucket=bucket, prefix=path, settings=settings, options=options)
        folder, _, listing = unquote(path).rpartition("/")
        if not listing:
            raise ConfigError(
                f"{scheme}://{bucket}: the address must name a text file that lists the dataset's files, one a line; "
                "got one that ends with a slash"
            )
        return ObjectAddress(
            scheme=scheme, bucket=bucket, prefix=folder.strip("/"), listing=listing, settings=settings, options=options
        )

    @property
    def name(self) -> str:
        """The last part of the prefix, or the bucket: the dataset's name if none is given."""
        return self.prefix.rpartition("/")[2] or self.bucket.partition(":")[0]

    @property
    def connections(self) -> int:
        """The most requests at once."""
        return int(self.settings.get("connections", _CONNECTIONS))

    def has(self, switch: str) -> bool:
        """Return whether a switch among the settings is on."""
        return self.settings.get(switch) == "true"

    def of(self, name: str) -> str:
        """Return an object's address, for people."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}{'/' if self.prefix else ''}{name}"

    @property
    def with_settings(self) -> str:
        """The address that `parse` returns this of, without the options of the format."""
        place = f"{self.scheme}://{self.bucket}/{quote(self.prefix) if self.listing else self.prefix}"
        if self.listing:
            place = f"{place.removesuffix('/')}/{quote(self.listing)}"
        return f"{place}?{urlencode(self.settings)}" if self.settings else place

    def __str__(self) -> str:
        end = f"/{self.listing}" if self.listing else ""
        return f"{self.scheme}://{self.bucket}{'/' if self.prefix else ''}{self.prefix}{end}"


def _sorted_out(scheme: str, query: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings and the options."""
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True)
    except ValueError:
        raise ConfigError(f"{scheme}://: the options of an address must be OPTION=VALUE&OPTION=VALUE") from None
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ConfigError(f"{scheme}://: the options of an address must be given once each, got {', '.join(names)}")
    settings: dict[str, str] = {}
    options: dict[str, str] = {}
    for name, value in pairs:
        if _SECRET.search(name):
            raise ConfigError(
                f"{scheme}://: an address must not hold credentials, got the option {name!r}. Give them by the "
                "environment or the host's role"
            )
        if name not in _SETTINGS:
            options[name] = value
            continue
        settings[name] = value.lower() if name in _SWITCHES else value
        if name in _SWITCHES and settings[name] not in ("true", "false"):
            raise ConfigError(f"{scheme}://: {name} must be true or false")
    connections = settings.get("connections", "1")
    if not connections.isdecimal() or not 1 <= int(connections) <= _MOST_CONNECTIONS:
        raise ConfigError(f"{scheme}://: connections must be a whole number in [1, {_MOST_CONNECTIONS}]")
    endpoint = settings.get("endpoint", "https://")
    if "@" in endpoint or not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"{scheme}://: endpoint must be http(s)://HOST:PORT without a name or a password")
    if endpoint.startswith("http://") and settings.get("allow_http") != "true":
        raise ConfigError(f"{scheme}://: an endpoint without TLS requires allow_http=true")
    return settings, options
