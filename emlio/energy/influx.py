"""A recording as InfluxDB reads it, sent over HTTP.

Covers: the line protocol, where to send it, credentials, errors. Does not cover: what is sent (emlio.energy.store).
InfluxDB 1 and 2, and what speaks as they do.
"""

import base64
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from emlio.energy.counter import Event
from emlio.energy.reading import Reading
from emlio.energy.run import Run
from emlio.errors import ConfigError, RefusedError, TransportError

__all__ = ["InfluxTarget", "influx_lines", "send_lines"]

_LINES_A_REQUEST = 5000
"""What InfluxDB's makers recommend."""

_TIMEOUT_S = 30.0
_MOST_REASON_BYTES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluxTarget:
    """Where to send to, and who sends.

    Attributes:
        url: with its query, without credentials.
        authorization: the header's value; None where there is none.
    """

    url: str
    authorization: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str, *, token: str | None = None) -> "InfluxTarget":
        """Of an address such as http://host:8086/write?db=energy or http://host:8086/api/v2/write?org=o&bucket=b.

        Args:
            text: the address; without a path /write is meant. It may hold a user and a password.
            token: InfluxDB 2's.
        """
        parts = urlsplit(text)
        query = dict(parse_qsl(parts.query))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the address of InfluxDB must begin with http:// or https:// and name a host")
        if not {"db", "bucket"} & set(query):
            raise ConfigError(
                f"the address of InfluxDB must name a database, as in http://{parts.hostname}:8086/write?db=energy, or an "
                "organisation and a bucket, as in /api/v2/write?org=mine&bucket=energy"
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
    """A line for each device and reading, and one for the node. What is absent has no line or no field.

    Args:
        run: whose readings.
        number: of the recording in its file: totals of another begin at 0 again.
        readings: in order.
    """
    shared = {"node": run.node, "run": str(number)}
    heads = [
        "emlio_energy,"
        + _tags(
            {
                **shared,
                "domain": str(device.domain),
                "device": device.name,
                "source": device.source,
                "method": str(device.method),
            }
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
        fields = {
            "cpu_busy_ns": reading.cpu_busy_ns,
            "cpu_steal_ns": reading.cpu_steal_ns,
            "cpu_total_ns": reading.cpu_total_ns,
            "net_rx_bytes": reading.net_rx_bytes,
            "net_tx_bytes": reading.net_tx_bytes,
            "memory_bytes": reading.memory_bytes,
            "missed": reading.missed,
            "spread_ns": reading.spread_ns,
        }
        text = ",".join(f"{name}={value}i" for name, value in fields.items() if value is not None)
        yield f"{node} {text} {reading.real_ns}"


def _tags(tags: dict[str, str]) -> str:
    return ",".join(f"{name}={_escaped(value)}" for name, value in tags.items())


def _escaped(value: str) -> str:
    """A tag's value; one that ended with a backslash would take the next sign with it."""
    for sign in (",", "=", " "):
        value = value.replace(sign, f"\\{sign}")
    return value.replace("\n", " ").rstrip("\\") or "-"


def send_lines(target: InfluxTarget, lines: Iterable[str], *, timeout_s: float = _TIMEOUT_S) -> int:
    """Send lines, some thousands in a request. Sending them again changes nothing.

    Returns:
        How many were sent.

    Raises:
        RefusedError: InfluxDB said no.
        TransportError: it cannot be reached.
    """
    left, sent = iter(lines), 0
    while batch := list(islice(left, _LINES_A_REQUEST)):
        _post(target, "\n".join(batch).encode(), timeout_s)
        sent += len(batch)
    return sent


def _post(target: InfluxTarget, body: bytes, timeout_s: float) -> None:
    request = urllib.request.Request(target.url, data=body, method="POST")  # its scheme is http or https
    request.add_header("Content-Type", "text/plain; charset=utf-8")
    if target.authorization is not None:
        request.add_header("Authorization", target.authorization)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s):
            return
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(_MOST_REASON_BYTES).decode(errors="replace").strip()
        raise RefusedError(f"InfluxDB at {target.url} said {error.code}: {said}", code=str(error.code)) from error
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise TransportError(f"InfluxDB at {target.url} must be reachable: {reason}") from error
