"""The kind of link that this machine can have, and opening one."""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager

from emlio.errors import ConfigError
from emlio_bench.link.contract import HERE, Link, LinkKind, LinkSpec
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.link.netem import why_no_netem

__all__ = ["choose_kind", "link_of", "open_link", "open_star"]


def choose_kind(
    wanted: LinkKind | None,
    tell: Callable[[str], None] = lambda _: None,
    *,
    why_no_netem: Callable[[], str | None] = why_no_netem,
    why_no_emulation: Callable[[], str | None] = why_not,
) -> LinkKind:
    """Return the best kind that can be made here, or the wanted one; tell why better ones cannot.

    Raises:
        ConfigError: none can be made; the message says why.
    """
    missing: list[str] = []
    for kind, reason in ((LinkKind.NETEM, why_no_netem), (LinkKind.EMULATED, why_no_emulation)):
        if wanted not in (None, kind):
            continue
        problem = reason()
        if problem is None:
            for better in missing:
                tell(f"the link is of the kind {kind}, as {better}")
            return kind
        missing.append(f"{kind} {problem}")
    raise ConfigError(f"no link can be made on this machine: {'; '.join(missing) or f'the kind {wanted} is not made'}")


def open_link(spec: LinkSpec, wanted: LinkKind | None = None) -> Link:
    """Open a link of the wanted kind, or of the best; REAL is this machine's loopback."""
    if wanted is LinkKind.REAL:
        return Link(spec, storage=HERE, training=HERE)
    return EmulatedLink(spec, choose_kind(wanted))


@contextmanager
def link_of(rtt_ns: int | None) -> Generator[Link | None, None, None]:
    """Open a link with this round trip; None for None, which is loopback without a link."""
    if rtt_ns is None:
        yield None
        return
    with open_link(LinkSpec(rtt_ns=rtt_ns)) as link:
        yield link


@contextmanager
def open_star(specs: Sequence[LinkSpec], wanted: LinkKind | None = None) -> Generator[tuple[Link, ...], None, None]:
    """Open links that share their training end."""
    kind = choose_kind(wanted)
    with ExitStack() as stack:
        links: list[EmulatedLink] = []
        for spec in specs:
            links.append(stack.enter_context(EmulatedLink(spec, kind, beside=links)))
        yield tuple(links)
