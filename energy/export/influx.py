"""A recording in InfluxDB's line protocol, sent over HTTP.

Works with InfluxDB 1 and 2 and with compatible servers.
"""

import base64
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from emlio.energy.values.counter import Event
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.errors import ConfigError, RefusedError, TransportError

__all__ = ["InfluxTarget", "influx_lines", "send_lines"]

_LINES_A_REQUEST = 5000
"""The batch size that InfluxDB's documentation recommends."""

_NODE_FIELDS = (
    *("cpu_busy_ns", "cpu_steal_ns", "cpu_total_ns", "net_rx_bytes", "net_tx_bytes", "memory_bytes"),
    *("missed", "spread_ns"),
)
_TIMEOUT_S = 30.0
_MOST_REASON_BYTES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluxTarget:
    """The address and the credentials of an InfluxDB server.

    Attributes:
        url: with its query, without credentials.
        authorization: the value of the Authorization header; None without credentials.
    """

    url: str
    authorization: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str, *, token: str | None = None) -> "InfluxTarget":
        """Parse an address.

        Examples are http://host:8086/write?db=energy and
        http://host:8086/api/v2/write?org=o&bucket=b.

        Args:
            text: the address; the default path is /write. It may hold a user and a password.
            token: for InfluxDB 2.
        """
        parts = urlsplit(text)
        query = dict(parse_qsl(parts.query))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the address of InfluxDB must be a http:// or https:// address with a host")
        if not {"db", "bucket"} & set(query):
            raise ConfigError(
                "the address of InfluxDB must name a database, such as "
                f"http://{parts.hostname}:8086/write?db=energy, or an organisation and a bucket, such as "
                "/api/v2/write?org=mine&bucket=energy"
            )
        path = parts.path if parts.path not in ("", "/") else "/write"
        place = parts.netloc.rpartition("@")[2]
        authorization = None if token is None else f"Token {token}"
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        url = urlunsplit((parts.scheme, place, path, urlencode({**query, "precision": "ns"}), ""))
        return cls(url=url, authorization=authorization)


def influx_lines(run: Run, number: int, readings: Iterable[Reading]) -> Iterator[str]:
    """Yield a line for each device and reading, and one per reading for the node.

    A missing value has no line or no field.

    Args:
        run: the recording that the readings belong to.
        number: of the recording in its file; totals start at 0 again in each recording.
        readings: in order.
    """
    shared = {"node": run.node, "run": str(number)}
    heads = [
        "emlio_energy,"
        + _tags(
            {**shared, "domain": device.domain, "device": device.name, "source": device.source, "method": device.method}
        )
        for device in run.devices
    ]
    node = "emlio_node," + _tags(shared)
    for reading in readings:
        for place, (head, total_uj) in enumerate(zip(heads, reading.totals, strict=True)):
            if total_uj is not None:
                joules = f"{total_uj // 1_000_000}.{total_uj % 1_000_000:06d}"
                event = reading.event(place)
                mark = "" if event is Event.NONE else f',event="{event}"'
                yield f"{head} joules={joules}{mark} {reading.real_ns}"
        values = ((name, getattr(reading, name)) for name in _NODE_FIELDS)
        text = ",".join(f"{name}={value}i" for name, value in values if value is not None)
        yield f"{node} {text} {reading.real_ns}"


def _tags(tags: dict[str, str]) -> str:
    return ",".join(f"{name}={_escaped(value)}" for name, value in tags.items())


def _escaped(value: str) -> str:
    """Return the escaped value of a tag.

    A trailing backslash would escape the character after the value.
    """
    for sign in (",", "=", " "):
        value = value.replace(sign, f"\\{sign}")
    return value.replace("\n", " ").rstrip("\\") or "-"


def send_lines(target: InfluxTarget, lines: Iterable[str], *, timeout_s: float = _TIMEOUT_S) -> int:
    """Send the lines, up to 5000 per request. Sending the same lines again changes nothing.

    Returns:
        The number of lines sent.

    Raises:
        RefusedError: InfluxDB answered with an error.
        TransportError: InfluxDB cannot be reached.
    """
    left, sent = iter(lines), 0
    while batch := list(islice(left, _LINES_A_REQUEST)):
        _post(target, "\n".join(batch).encode(), timeout_s)
        sent += len(batch)
    return sent


def _post(target: InfluxTarget, body: bytes, timeout_s: float) -> None:
    request = urllib.request.Request(target.url, data=body, method="POST")  # the scheme is http or https
    request.add_header("Content-Type", "text/plain; charset=utf-8")
    if target.authorization is not None:
        request.add_header("Authorization", target.authorization)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s):
            return
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(_MOST_REASON_BYTES).decode(errors="replace").strip()
        raise RefusedError(f"InfluxDB at {target.url} answered {error.code}: {said}", code=str(error.code)) from error
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise TransportError(f"InfluxDB at {target.url} cannot be reached: {reason}") from error
