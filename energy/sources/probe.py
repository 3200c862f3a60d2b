"""Detection of this machine's energy sources.

Covers: the order of preference, duplicates, which domains are left to the model, opening what was
found. Does not cover: the sources (one file each), the table for people (emlio.cli.energy.probe).
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from emlio.energy.sources.calibration import Calibration
from emlio.energy.sources.cpu_time import is_virtual, read_facts
from emlio.energy.sources.finding import EnergyCounter, Finding, State
from emlio.energy.sources.hwmon import find_sensors
from emlio.energy.sources.machine import Machine, which_live
from emlio.energy.sources.model import CpuWatts, ModelCounter, PowerModel, choose_model, estimated_device
from emlio.energy.sources.nvml import find_gpus
from emlio.energy.sources.perf import find_events
from emlio.energy.sources.powercap import find_zones
from emlio.energy.values.device import Device, Domain
from emlio.errors import ConfigError

__all__ = ["ProbeReport", "open_sources", "probe"]

_PATIENCE_NS = 1_000_000_000
_EXPORT_PATIENCE_NS = 12_000_000_000
"""Hosts write their guests' energy every few seconds, not every few milliseconds."""

_MODELLED = (Domain.CPU, Domain.DRAM)
"""Domains that are modelled where they have no counter. Each is counted by only one source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """The result of a probe.

    Attributes:
        findings: every candidate, in order of preference.
        virtual: whether this is a virtual machine, as far as its processor reports it.
        model: the model used for estimates.
        machine: the machine that was probed.
    """

    findings: tuple[Finding, ...]
    virtual: bool
    model: PowerModel
    machine: Machine = field(repr=False, compare=False)

    @property
    def live(self) -> tuple[Finding, ...]:
        """The findings whose counter or sensor works."""
        return tuple(finding for finding in self.findings if finding.state is State.LIVE)

    @property
    def measured(self) -> bool:
        """True if anything can be measured, or derived from a measurement."""
        return bool(self.live)

    @property
    def estimated(self) -> tuple[Domain, ...]:
        """The domains left to the model."""
        return tuple(domain for domain in _MODELLED if domain not in {finding.domain for finding in self.live})

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that `open_sources` opens, in its order."""
        counted = [finding.device for finding in self.live if finding.device is not None]
        return (*counted, *(estimated_device(self.model, domain) for domain in self.estimated))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about devices that are missing from totals.

        These are counters that cannot be read while others of their domain can, and GPUs, which
        have no model.
        """
        live = {finding.name for finding in self.live}
        counted = {finding.domain for finding in self.live if finding.device is not None and finding.device.adds}
        lost = [
            finding
            for finding in self.findings
            if finding.state in (State.DEAD, State.NO_PERMISSION)
            and (finding.device is None or finding.device.adds)
            and finding.domain in {*counted, Domain.GPU}
            and finding.name not in live
        ]
        return tuple(
            dict.fromkeys(f"not counted: {one.name} ({one.state}); totals of {one.domain} lack it" for one in lost)
        )


def probe(
    machine: Machine | None = None,
    *,
    powercap_root: Path | None = None,
    cpu_watts: CpuWatts | None = None,
    calibration: Calibration | None = None,
) -> ProbeReport:
    """Look for all energy sources and try them. A core is kept busy for a second or two.

    Args:
        machine: the machine to probe; by default this one.
        powercap_root: a powercap tree that this guest's host writes.
        cpu_watts: for the model; preferred to a calibration.
        calibration: for the model; preferred to constants.
    """
    machine = machine or Machine()
    virtual = is_virtual(machine.proc)
    judge = _Judge(machine)
    if powercap_root is not None:
        judge.hear(find_zones(powercap_root, exported=True), _EXPORT_PATIENCE_NS)
    judge.hear(find_zones(machine.sysfs / "class/powercap"), _PATIENCE_NS)
    if virtual and Domain.CPU in judge.counted:
        # Opening the events makes a guest's kernel read registers that the hypervisor may lack, and
        # log errors.
        judge.hear(
            [Finding.absent("perf", "not read: the processors are already counted, and this is a virtual machine")], 0
        )
    else:
        judge.hear(find_events(machine.sysfs, machine.open_event), _PATIENCE_NS)
    judge.hear(find_sensors(machine.sysfs, machine.clock), _PATIENCE_NS)
    judge.hear(find_gpus(machine.load_nvml, machine.clock, proc=machine.proc), _PATIENCE_NS)
    model = choose_model(read_facts(machine.proc), cpu_watts=cpu_watts, calibration=calibration)
    return ProbeReport(findings=tuple(judge.heard), virtual=virtual, model=model, machine=machine)


class _Judge:
    """A judge that gives every candidate its state, one source after the other."""

    def __init__(self, machine: Machine) -> None:
        self.heard: list[Finding] = []
        self._machine = machine

    @property
    def counted(self) -> set[Domain]:
        return {finding.domain for finding in self.heard if finding.state is State.LIVE and finding.domain is not None}

    def hear(self, findings: Sequence[Finding], patience_ns: int) -> None:
        """Judge the candidates of one source.

        Of several with one name, the first that works is taken.
        """
        taken = {finding.name: finding for finding in self.heard if finding.state is State.LIVE}
        counted = {finding.domain: finding for finding in taken.values()}
        states = list(findings)
        while True:
            trying: dict[str, int] = {}
            for place, finding in enumerate(states):
                if finding.state is not State.UNTRIED:
                    continue
                other = taken.get(finding.name) or (
                    counted.get(finding.domain) if finding.domain in _MODELLED else None
                )
                if other is not None:
                    detail = f"the same as {other.name} of {other.source}, which is recorded"
                    states[place] = replace(finding, state=State.DUPLICATE, detail=detail)
                else:
                    trying.setdefault(finding.name, place)
            if not trying:
                break
            tried = self._tried([states[place] for place in trying.values()], patience_ns)
            for place, finding in zip(trying.values(), tried, strict=True):
                states[place] = finding
                if finding.state is State.LIVE:
                    taken[finding.name] = finding
        self.heard.extend(states)

    def _tried(self, findings: Sequence[Finding], patience_ns: int) -> list[Finding]:
        with ExitStack() as stack:
            opened: dict[int, EnergyCounter] = {}
            judged = list(findings)
            for place, finding in enumerate(findings):
                try:
                    source = finding.opened()
                except PermissionError:
                    judged[place] = replace(finding, state=State.NO_PERMISSION, detail=finding.remedy)
                except OSError as error:
                    judged[place] = replace(finding, state=State.DEAD, detail=f"it cannot be read: {error}")
                else:
                    stack.callback(source.close)
                    opened[place] = source
            lives = which_live(list(opened.values()), patience_ns=patience_ns, burner=self._machine.burner)
            for (place, _), alive in zip(opened.items(), lives, strict=True):
                if alive:
                    judged[place] = replace(findings[place], state=State.LIVE)
                else:
                    text = f"its value did not change within {patience_ns / 1e9:g} s while a core was busy"
                    judged[place] = replace(findings[place], state=State.DEAD, detail=text)
        return judged


def open_sources(report: ProbeReport) -> tuple[EnergyCounter, ...]:
    """Open what is to be recorded: every working counter, and the model for domains without one.

    The caller closes the sources.

    Raises:
        ConfigError: a counter that was readable during the probe cannot be opened now.
    """
    sources: list[EnergyCounter] = []
    try:
        for finding in report.live:
            try:
                sources.append(finding.opened())
            except OSError as error:
                raise ConfigError(f"{finding.name} was readable before, and cannot be opened now: {error}") from error
        machine = report.machine
        sources.extend(
            ModelCounter(report.model, domain, proc=machine.proc, clock=machine.clock) for domain in report.estimated
        )
    except BaseException:
        _close(sources)
        raise
    return tuple(sources)


def _close(sources: Iterable[EnergyCounter]) -> None:
    for source in sources:
        source.close()
