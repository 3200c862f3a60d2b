"""Everything that can go wrong with a daemon and what lies between it and the rank.

Covers: crashes, connections that end and that fall silent, messages that are lost. Does not cover: what follows (steps).
"""

from collections.abc import Iterator

from daemons import Lane, LaneState, Side, with_lane

__all__ = ["mishaps"]


def mishaps(side: Side, name: str) -> Iterator[tuple[str, Side]]:
    """What can go wrong, and the side after it."""
    excused = side._replace(excused=True)
    if side.alive:
        dead = excused._replace(alive=False, linked=False, known=False, up=(), down=(), feed=None)
        yield f"{name} crashes", dead._replace(lanes=tuple(_ended(lane, len(lane.queue)) for lane in side.lanes))
        if any(lane.queue for lane in side.lanes):
            lost = tuple(_ended(lane, 0) for lane in side.lanes)
            yield f"{name} crashes, what was under way is lost", dead._replace(lanes=lost)
    if side.linked:
        cut = excused._replace(linked=False, known=False, up=(), down=())
        yield f"the control connection of {name} is cut", cut
    for lane in side.lanes:
        queue = [list(message.places) for message in lane.queue]
        where = f"the lane with {queue} of {name}"
        if lane.state is LaneState.UP:
            for left in range(len(lane.queue) + 1):
                yield f"{where} ends, {left} of its messages arrive", with_lane(excused, _ended(lane, left))
            silent = lane._replace(state=LaneState.SILENT, queue=(), credit=None)
            yield f"{where} falls silent", with_lane(excused, silent)
            for at in range(len(lane.queue) - 1):
                less = lane._replace(queue=(*lane.queue[:at], *lane.queue[at + 1 :]))
                yield f"message {at} of {where} is lost", with_lane(excused, less)
        elif lane.state is LaneState.CONNECTING:
            yield f"{where} cannot be connected", with_lane(excused, _ended(lane, 0))


def _ended(lane: Lane, arrive: int) -> Lane:
    return lane._replace(state=LaneState.ENDED, queue=lane.queue[:arrive], credit=None)
