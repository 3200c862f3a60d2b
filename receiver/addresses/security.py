"""The settings of a loader for keys and encryption.

Covers: the value given to a loader, checked. Does not cover: finding the keys
(emlio.receiver.addresses.trust), what they protect (docs/operate/security.md).
"""

import os
from dataclasses import dataclass, fields
from typing import cast

from emlio.arguments import choice, named_only
from emlio.errors import ConfigError
from emlio.keys.key import PublicKey
from emlio.wire.protection import SETTINGS

__all__ = ["Security"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The settings of a loader for keys and encryption.

        EmlioLoader(address, batch_size=256, security=Security(encryption="aead"))

    Attributes:
        keys: the folder with this host's keys and those of the daemons it knows, made by `emlio
            keygen`. None: the folder where `emlio keygen` puts keys.
        daemon_key: the key that all daemons must have. A key in the address goes first:
            emlio://KEY@HOST:PORT/DATASET. None: EMLIO_DAEMON_KEY, or what `emlio trust` recorded
            for each daemon. A daemon without a known key needs none.
        encryption: of records in transit. "auto": wherever daemons have keys. "aead": always; it is
            an error where keys are missing. "off": never.
    """

    keys: "str | os.PathLike[str] | None" = None
    daemon_key: str | None = None
    encryption: str = "auto"

    def __new__(cls, *values: object, **options: object) -> "Security":
        """Refuse arguments that the class does not have, with the names of those that it has."""
        named_only(cls.__name__, [one.name for one in fields(cls)], ["..."] * len(values), options)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.keys), str | os.PathLike | None) or self.keys == "":
            raise ConfigError(f"keys must be the path of a folder, or None, got {self.keys!r}")
        choice("encryption", self.encryption, SETTINGS)
        given = cast("object", self.daemon_key)
        if given is None:
            return
        # The value is never shown: it may be a secret key in the wrong place.
        if not isinstance(given, str):
            raise ConfigError(f"daemon_key must be a key as text, or None, got a value of type {type(given).__name__}")
        try:
            PublicKey.parse(given)
        except ConfigError as error:
            raise ConfigError(f"daemon_key: {error}") from None
