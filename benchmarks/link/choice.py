"""Which link there can be here.

Covers: the order of preference, why one that was asked for cannot be, several that share their training end. Does not cover: the
links.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager

from emlio.benchmarks.link.contract import Link, LinkKind
from emlio.benchmarks.link.emulated import EmulatedLink, why_not
from emlio.benchmarks.link.netem import why_no_netem
from emlio.benchmarks.link.relay import RelayedLink
from emlio.benchmarks.link.spec import LinkSpec
from emlio.errors import ConfigError

__all__ = ["choose_kind", "open_link", "open_star"]


def choose_kind(
    wanted: LinkKind | None,
    *,
    why_no_netem: Callable[[], str | None] = why_no_netem,
    why_no_emulation: Callable[[], str | None] = why_not,
) -> tuple[LinkKind, tuple[str, ...]]:
    """The kind, and why not those that come before it: the kernel's own delay, ours, a relay.

    Args:
        wanted: the only one that will do; None for the best there is.
        why_no_netem: asked first.
        why_no_emulation: asked next.

    Raises:
        ConfigError: the one that is wanted cannot be.
    """
    missing: list[str] = []
    for kind, reason in ((LinkKind.NETEM, why_no_netem), (LinkKind.EMULATED, why_no_emulation)):
        if wanted not in (None, kind):
            continue
        problem = reason()
        if problem is None:
            return kind, tuple(missing)
        if wanted is kind:
            raise ConfigError(f"a link of the kind {kind} {problem}")
        missing.append(f"{kind} {problem}")
    return LinkKind.RELAY, tuple(missing)


def open_link(spec: LinkSpec, wanted: LinkKind | None = None) -> Link:
    """Bring one up. Its `kind` says which it is.

    Args:
        spec: what is wanted of it.
        wanted: the only kind that will do; None for the best there is here.
    """
    kind, _ = choose_kind(wanted)
    return RelayedLink(spec) if kind is LinkKind.RELAY else EmulatedLink(spec, kind)


@contextmanager
def open_star(specs: Sequence[LinkSpec], wanted: LinkKind | None = None) -> Generator[tuple[Link, ...], None, None]:
    """Bring up links that share their training end while the block lasts: each has a storage end and a line of its own.

    Args:
        specs: what is wanted of each.
        wanted: the only kind that will do; None for the best there is here.

    Raises:
        ConfigError: there can be relays only. They have no ends that could be shared.
    """
    kind, missing = choose_kind(wanted)
    if kind is LinkKind.RELAY:
        raise ConfigError(
            f"links that share an end must be of namespaces, got {kind}: {'; '.join(missing) or 'asked for'}"
        )
    with ExitStack() as stack:
        links: list[EmulatedLink] = []
        for spec in specs:
            links.append(stack.enter_context(EmulatedLink(spec, kind, beside=links)))
        yield tuple(links)
