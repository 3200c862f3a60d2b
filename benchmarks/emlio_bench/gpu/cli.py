"""The program behind scripts/gpu."""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from emlio.errors import EmlioError
from emlio.settings import add_flags, read_settings
from emlio_bench.decode.subjects import is_installed
from emlio_bench.gpu.parts import GpuSettings, PlacesOfPart, chosen
from emlio_bench.gpu.process import run_process
from emlio_bench.gpu.report import first_words, write_gpu_report
from emlio_bench.gpu.run import exit_status, run_parts
from emlio_bench.harness.cuda import gpu_words, why_no_gpu
from emlio_bench.race.needs.environments import cache_folder

__all__ = ["main", "places_of"]

_ROOT: Final = Path(__file__).resolve().parents[3]
_TORCH_SEES_GPU: Final = "import sys, torch; sys.exit(not torch.cuda.is_available())"
_START_S: Final = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run all parts and write the page.

    Returns:
        0 if all parts passed that could run and be checked, 1 if one did not, 2 without a GPU,
        after an error or if there was no such part, 70 after any other exception, 130 after an
        interruption.
    """
    parser = argparse.ArgumentParser(prog="scripts/gpu", description="Run all that needs a GPU, in one go.")
    add_flags(parser, GpuSettings)
    flags = vars(parser.parse_args(argv))
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        settings = read_settings(
            GpuSettings,
            flags=flags,
            environment=os.environ,
            prefix="EMLIO_GPU_",
            table={},
            table_name="",
            others={},
        )
        if (reason := why_no_gpu()) is not None:
            return _refuse(f"a GPU is needed: {reason}")
        return _run(settings)
    except EmlioError as error:
        return _refuse(f"error: {error}")
    except KeyboardInterrupt:
        print("scripts/gpu: interrupted", file=sys.stderr)
        return 130
    except Exception:  # noqa: BLE001  # Python's own exit status would say that a part did not pass
        with suppress(OSError):  # the reader of stderr may have gone
            traceback.print_exc()
        return os.EX_SOFTWARE
    finally:
        signal.signal(signal.SIGTERM, before)


def places_of(settings: GpuSettings, environment: Mapping[str, str]) -> PlacesOfPart:
    """Return the folders of a run. Relative ones count from the current folder.

    Args:
        settings: the settings.
        environment: environment variables; XDG_CACHE_HOME is used if present.
    """
    return PlacesOfPart(
        root=_ROOT,
        out=settings.out.absolute(),
        cache=cache_folder(settings.cache, environment).absolute(),
    )


def _run(settings: GpuSettings) -> int:
    places = places_of(settings, os.environ)
    try:
        places.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _refuse(f"--out must be a folder that can be written: {places.out}: {error.strerror}")
    carry_out = partial(run_process, tell=_show, folder=_ROOT)
    if is_installed("torch") and carry_out([sys.executable, "-c", _TORCH_SEES_GPU], _START_S).status != 0:
        return _refuse("a PyTorch that can use the GPU is needed, and this one cannot")
    found = run_parts(
        chosen(settings.parts),
        places,
        settings.within,
        is_installed=is_installed,
        carry_out=carry_out,
        tell=_tell,
    )
    written = write_gpu_report(found, places.out, gpu_words())
    print(f"{first_words(found)}\n\n{places.out}: {written}")
    return exit_status(found)


def _refuse(reason: str) -> int:
    print(f"scripts/gpu: {reason}", file=sys.stderr)
    return 2


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show(line: str) -> None:
    print(f"    {line}", file=sys.stderr, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
