"""What protects one stream's lanes: whom they let in, and the seals of what they carry.

Covers: drawing the stream's secret, guests and seals by lane. Does not cover: letting in (emlio.daemon.gate), what was agreed
(emlio.wire.protection).
"""

from dataclasses import dataclass, field

from emlio.daemon.gate import Guest
from emlio.keys.curve import KeyPair
from emlio.keys.key import SecretKey
from emlio.wire.protection import CURVE
from emlio.wire.seal import CIPHERS, LaneSeal, admission_token, lane_key, new_secret

__all__ = ["LaneGuard"]

_ADMISSION_NS = 10_000_000_000
"""A rank connects when it has heard of the ports: a round trip, and a turn of its thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneGuard:
    """See the module.

    Attributes:
        protection: what rank and daemon came to.
        secret: the stream's own, for the rank alone.
    """

    protection: str
    secret: bytes = field(default=b"", repr=False)

    @classmethod
    def draw(cls, protection: str) -> "LaneGuard":
        """For a new stream."""
        return cls(protection=protection, secret=new_secret())

    def guest(self, lane: int, now_ns: int) -> Guest:
        """Whom the lane waits for."""
        until_ns = now_ns + _ADMISSION_NS
        if self.protection == CURVE:
            # Not the rank's own key: a port may be another stream's by the time that a late connection reaches it.
            own = KeyPair.of(SecretKey(raw=lane_key(self.secret, lane)))
            return Guest(key=own.public.raw, until_ns=until_ns)
        return Guest(token=admission_token(self.secret, lane) if self.secret else b"", until_ns=until_ns)

    def seal(self, lane: int) -> LaneSeal | None:
        """The lane's seal; None where payloads travel as they are."""
        if self.protection not in CIPHERS:
            return None
        return LaneSeal(cipher=self.protection, secret=self.secret, lane=lane)
