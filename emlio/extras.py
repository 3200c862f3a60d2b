"""Advice on installing what an extra of EMLIO needs.

It names the requirements themselves: that works for an installed wheel and for a checkout, and needs no
package index that has EMLIO.
"""

__all__ = ["how_to_install"]


def how_to_install(extra: str) -> str:
    """Return the command that installs the requirements of an extra."""
    from importlib.metadata import PackageNotFoundError, requires  # slow to import, and seldom needed

    try:
        needed = [line.partition(";") for line in requires("emlio") or ()]
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        needed = []
    found = [f'"{name.strip()}"' for name, _, marker in needed if f'extra == "{extra}"' in marker.replace("'", '"')]
    return f"pip install {' '.join(found)}" if found else f'pip install ".[{extra}]" in the checkout of EMLIO'
