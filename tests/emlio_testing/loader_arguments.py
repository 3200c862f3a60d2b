"""The arguments of a loader from one flat mapping.

For tests that merge several mappings of arguments, or that send them to another process as JSON.
"""

from dataclasses import fields
from typing import Any

from emlio.receiver.addresses.security import Security
from emlio.receiver.setup.recovery import Recovery

__all__ = ["loader_arguments"]

_OBJECTS: dict[str, type[Any]] = {"recovery": Recovery, "security": Security}


def loader_arguments(**flat: Any) -> dict[str, Any]:
    """Return arguments for `EmlioLoader`, in which `Recovery` and `Security` hold their fields.

    Args:
        flat: arguments of the loader, and fields of these two objects by their own names.
    """
    for name, kind in _OBJECTS.items():
        given = {field.name: flat.pop(field.name) for field in fields(kind) if field.name in flat}
        if given:
            flat[name] = kind(**given)
    return flat
