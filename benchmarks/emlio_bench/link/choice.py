"""The choice of a link for this machine.

Covers: the order of preference, reasons why a requested kind is impossible, several links that
share their training end. Does not cover: the links.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager

from emlio.errors import ConfigError
from emlio_bench.link.contract import Link, LinkKind
from emlio_bench.link.kinds.emulated import EmulatedLink, why_not
from emlio_bench.link.kinds.netem import why_no_netem
from emlio_bench.link.kinds.relay import RelayedLink
from emlio_bench.link.spec import LinkSpec

__all__ = ["choose_kind", "open_link", "open_star"]


def choose_kind(
    wanted: LinkKind | None,
    *,
    why_no_netem: Callable[[], str | None] = why_no_netem,
    why_no_emulation: Callable[[], str | None] = why_not,
) -> tuple[LinkKind, tuple[str, ...]]:
    """Choose the kind of link, in the order netem, emulated, relay.

    Args:
        wanted: the only acceptable kind; None for the best available kind.
        why_no_netem: returns the reason why netem is impossible, or None. Called first.
        why_no_emulation: returns the reason why an emulated link is impossible, or None. Called
            next.

    Returns:
        The kind, and the reasons why the kinds before it are impossible.

    Raises:
        ConfigError: the requested kind is impossible.
    """
    if wanted is LinkKind.REAL:
        raise ConfigError(f"a link of the kind {wanted} must be there already, it cannot be made")
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
    """Start a link. Its `kind` tells which kind it is.

    Args:
        spec: the specification.
        wanted: the only acceptable kind; None for the best available kind.
    """
    kind, _ = choose_kind(wanted)
    return RelayedLink(spec) if kind is LinkKind.RELAY else EmulatedLink(spec, kind)


@contextmanager
def open_star(specs: Sequence[LinkSpec], wanted: LinkKind | None = None) -> Generator[tuple[Link, ...], None, None]:
    """Start links that share their training end, for the duration of the block.

    Each link has a storage end and a line of its own.

    Args:
        specs: the specification of each link.
        wanted: the only acceptable kind; None for the best available kind.

    Raises:
        ConfigError: only relays are possible. They have no ends that could be shared.
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
