"""Key pairs for ZeroMQ's CURVE."""

from typing import Self

import msgspec
import zmq
from zmq.utils import z85

from emlio.errors import ConfigError
from emlio.keys.key import PublicKey, SecretKey

__all__ = ["KeyPair"]


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """A host's secret key and the public key that belongs to it."""

    secret: SecretKey
    public: PublicKey

    def __post_init__(self) -> None:
        if _public_of(self.secret) != self.public:
            raise ConfigError(f"the public key {self.public.fingerprint} does not belong to the secret key")

    @classmethod
    def make(cls) -> Self:
        """Make a new pair from the system's source of randomness."""
        _check_curve()
        public, secret = zmq.curve_keypair()
        return cls(secret=SecretKey(raw=z85.decode(secret)), public=PublicKey(raw=z85.decode(public)))

    @classmethod
    def of(cls, secret: SecretKey) -> Self:
        """Return the pair of a secret key."""
        return cls(secret=secret, public=_public_of(secret))


def _public_of(secret: SecretKey) -> PublicKey:
    _check_curve()
    return PublicKey(raw=z85.decode(zmq.curve_public(secret.z85)))


def _check_curve() -> None:
    if not zmq.has("curve"):
        raise ConfigError("keys require a libzmq built with CURVE, the one of this pyzmq was built without it")
