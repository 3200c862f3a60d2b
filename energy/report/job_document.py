"""The energy of a job as a JSON-compatible document.

Covers: what holds for all epochs; its names. Does not cover: an epoch
(emlio.energy.report.epoch_document), reading it back (emlio.energy.report.job_summary).
"""

from typing import Any

from emlio.energy.job.job_energy import Job, JobNode
from emlio.energy.report.epoch_document import report_document

__all__ = ["job_document", "loader_settings"]


def job_document(job: Job) -> dict[str, Any]:
    """Return the document of the whole job. An unknown value is null."""
    note = job.note
    return {
        **report_document(job.energies),
        "job": {
            "command": [] if note is None else list(note.command),
            "exit_status": None if note is None else note.status,
            "begun_real_ns": None if note is None else note.begun_real_ns,
            "version": "" if note is None else note.version,
            "whole": report_document([job.whole])["epochs"][0] if job.whole is not None else None,
            "nodes": [_node(one) for one in job.nodes],
            "datasets": sorted(
                {one.loader.dataset for folder in job.folders for one in folder.journals if one.loader.dataset}
            ),
            "settings": loader_settings(job),
            "partial": [one.energy.title for one in job.epochs if not one.whole],
            "notes": list(job.notes),
        },
    }


def loader_settings(job: Job) -> dict[str, str]:
    """Return the settings of the job's first loader."""
    facts = [one.loader for folder in job.folders for one in folder.journals]
    if not facts:
        return {}
    first = min(facts, key=lambda one: (one.number, one.rank))
    told = {
        "ranks": str(first.world_size),
        "batch size": "" if first.batch_size is None else str(first.batch_size),
        "shuffle": first.shuffle,
        "protection": first.protection,
        "version": first.version,
    }
    return {name: value for name, value in told.items() if value}


def _node(node: JobNode) -> dict[str, Any]:
    return {
        "node": node.node,
        "role": node.role.value,
        "boot": node.boot,
        "processor": node.processor,
        "cores": node.cores,
        "memory_bytes": node.memory_bytes,
        "devices": [
            {
                "name": device.name,
                "domain": device.domain.value,
                "source": device.source,
                "method": device.method.value,
                "adds": device.adds,
                "note": device.note,
            }
            for device in node.devices
        ],
    }
