"""Reads with EMLIO, from a daemon or from a directory."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from emlio import DaliPipeline, EmlioLoader

__all__ = ["open_source", "prepared"]

_graph: Any = import_module("training_graph")
prepared: Any = _graph.imported


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    usual: dict[str, Any] = {"raw": True, "to": "numpy"}
    with EmlioLoader(
        order["url"],
        batch_size=order["batch"],
        shuffle=order["options"].get("shuffle", "global"),
        seed=order["seed"],
        rank=0,
        world_size=1,
        epochs=order["epochs"],
        local=order["here"] or None,
        **(_decoding(order) if order["decode"] else usual),
    ) as loader:

        def batches(number: int) -> Iterator[Sequence[Any]]:
            for batch in loader:
                if order["decode"]:
                    yield _graph.ids_of(batch["__id__"], batch["image"], batch.get("label"))
                else:
                    yield batch["record"]

        yield batches


def _decoding(order: dict[str, Any]) -> dict[str, Any]:
    dali: Any = import_module("emlio.dali")
    device, learn = _graph.device_of(order), order["train"]

    def training() -> Any:
        if not learn:
            return _graph.train_on(dali.inputs(_graph.IMAGE), device)
        encoded, label = dali.inputs(_graph.IMAGE, _graph.LABEL)
        return _graph.train_on(encoded, device, learn=True), label

    made = DaliPipeline(training, outputs=["image", "label"] if learn else ["image"])
    return {"dali": made, "threads": order["decoders"], "ids": True, "device": device}
