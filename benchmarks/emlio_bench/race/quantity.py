"""The quantities of a run in a race, by which it is told about and compared."""

from enum import StrEnum
from typing import Final

__all__ = ["BYTES", "UNITS", "Quantity"]


class Quantity(StrEnum):
    """The quantities of a run.

    Costs are of all epochs, energies of one. A run that was cut gives bounds.
    """

    FIRST_EPOCH = "first epoch"
    LATER_EPOCHS = "later epochs"
    FIRST_BATCH = "first batch"
    RECORDS_RATE = "records rate"
    BIT_RATE = "bit rate"
    FLOW_BIT_RATE = "flow bit rate"
    WAIT_SHARE = "wait share"
    TRAINING_CPU = "training cpu"
    STORAGE_CPU = "storage cpu"
    PEAK_MEMORY = "peak memory"
    WIRE_SHARE = "wire share"
    LEFT_BYTES = "left on disk"
    ENERGY = "energy"
    REST_ENERGY = "energy at rest"
    COMPUTE_ENERGY = "energy of compute"
    STORAGE_ENERGY = "energy of storage"
    STEP_ENERGY = "energy of steps"
    WAIT_ENERGY = "energy of waiting"
    IN_FLIGHT = "in flight"
    PEAK_IN_FLIGHT = "peak in flight"
    BLOCKS = "blocks"
    RECORDS = "records"
    DROPPED = "dropped packets"
    ELAPSED = "elapsed"


_SECONDS: Final = (
    Quantity.FIRST_EPOCH,
    Quantity.LATER_EPOCHS,
    Quantity.FIRST_BATCH,
    Quantity.TRAINING_CPU,
    Quantity.STORAGE_CPU,
    Quantity.ELAPSED,
)
BYTES: Final = (Quantity.PEAK_MEMORY, Quantity.LEFT_BYTES, Quantity.IN_FLIGHT, Quantity.PEAK_IN_FLIGHT)
UNITS: Final = {
    **dict.fromkeys(_SECONDS, "s"),
    **dict.fromkeys(BYTES, "B"),
    **{one: "J" for one in Quantity if one.startswith("energy")},
    Quantity.RECORDS_RATE: "records/s",
    Quantity.BIT_RATE: "bit/s",
    Quantity.FLOW_BIT_RATE: "bit/s",
}
