"""What protects one stream's lanes: whom they let in, and the seals of what they carry.

Covers: drawing the stream's secret, guests and seals by lane. Does not cover: letting in (emlio.daemon.gate), what was agreed
(emlio.wire.protection).
"""

from dataclasses import dataclass, field

from emlio.daemon.gate import Guest
from emlio.wire.protection import CURVE
from emlio.wire.seal import CIPHERS, LaneSeal, admission_token, new_secret

__all__ = ["LaneGuard"]

_ADMISSION_NS = 10_000_000_000
"""A rank connects when it has heard of the ports: a round trip, and a turn of its thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneGuard:
    """See the module.

    Attributes:
        protection: what rank and daemon came to.
        key: the rank's public key; none where nobody is asked for one.
        secret: the stream's own, for the rank alone; none where lanes ask for the rank's key.
    """

    protection: str
    key: bytes = b""
    secret: bytes = field(default=b"", repr=False)

    @classmethod
    def draw(cls, protection: str, key: bytes) -> "LaneGuard":
        """For a new stream."""
        return cls(protection=protection, key=key, secret=b"" if protection == CURVE else new_secret())

    def guest(self, lane: int, now_ns: int) -> Guest:
        """Whom the lane waits for."""
        token = admission_token(self.secret, lane) if self.secret else b""
        return Guest(token=token, key=b"" if token else self.key, until_ns=now_ns + _ADMISSION_NS)

    def seal(self, lane: int) -> LaneSeal | None:
        """The lane's seal; None where payloads travel as they are."""
        if self.protection not in CIPHERS:
            return None
        return LaneSeal(cipher=self.protection, secret=self.secret, lane=lane)
