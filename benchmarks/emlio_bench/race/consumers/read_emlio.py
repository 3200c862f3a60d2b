"""Reads with EMLIO, from a daemon or from a directory, as a training script does.

Pictures are decoded by a DALI pipeline. With the option `record` it reads that column of any format, with the labels
of the column `label`; with `weights` the addresses are those of the datasets of a mixture.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from emlio import DaliPipeline, EmlioLoader, Mixture

__all__ = ["open_source", "prepared"]

_ID_BYTES = 8
_graph: Any = import_module("training_graph")
_parts: Any = import_module("parts")
prepared: Any = _graph.imported


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options, source = order["options"], order["url"]
    form: dict[str, Any] = {"raw": True, "to": "numpy"}
    if weights := _parts.weights_of(order):
        source = Mixture(list(zip(source.split(), weights, strict=True)), samples=int(options["samples"]))
    if order["decode"]:
        form = _decoding(order)
    elif "record" in options and not options.get("raw"):
        form = {"fields": [options[name] for name in ("record", "label") if options.get(name)], "to": "numpy"}
    with EmlioLoader(
        source,
        batch_size=order["batch"],
        shuffle=options.get("shuffle", "global"),
        seed=order["seed"],
        rank=0,
        world_size=1,
        epochs=order["epochs"],
        local=order["here"] or None,
        **form,
    ) as loader:

        def batches(number: int) -> Iterator[Sequence[Any]]:
            for place, batch in enumerate(loader):
                if order["decode"]:
                    yield _graph.ids_of(batch["__id__"], batch["image"], batch.get("label"))
                    continue
                records = batch[options.get("record", "record")]
                if place == number == 0 and options.get("label"):
                    _check_labels(records, batch[options["label"]], int(options["labels"]))
                # Rows of an array of tokens are handed over as bytes.
                yield records.view("u1") if hasattr(records, "view") else records

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


def _check_labels(records: Sequence[Any], labels: Any, count: int) -> None:
    wanted = [int.from_bytes(record[:_ID_BYTES], "little") % count for record in records]
    found = [int(label) for label in labels.reshape(-1)]
    if found != wanted:
        raise ValueError(f"each record must come with its own label, {wanted[:4]}..., got {found[:4]}...")
