"""The names of threads, as the kernel has them."""

from pathlib import Path
from threading import Thread

import pytest

from emlio.thread_name import show_thread_name

OWN = Path("/proc/thread-self/comm")


@pytest.mark.parametrize(
    ("name", "shown"), [("emlio-lanes", "emlio-lanes"), ("emlio-read-imagenet-0", "emlio-read-imag")]
)
def test_the_kernel_calls_a_thread_by_its_name(name: str, shown: str) -> None:
    found: list[str] = []
    before = OWN.read_text()

    def run() -> None:
        show_thread_name()
        found.append(OWN.read_text().rstrip("\n"))

    thread = Thread(target=run, name=name)
    thread.start()
    thread.join()
    assert found == [shown]
    assert OWN.read_text() == before
