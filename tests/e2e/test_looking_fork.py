"""`EmlioDataset` in a process that is forked while another thread is inside of it.

Does not cover: worker processes of PyTorch's DataLoader (test_looking_workers.py).
"""

from pathlib import Path

from emlio_testing.datasets import make_dataset
from emlio_testing.rank_groups import run_script

_SCRIPT = """
import os, signal, sys, warnings
from threading import Event, Thread
from emlio import EmlioDataset

warnings.simplefilter("ignore")  # newer Pythons warn of threads beside a fork
inside, go_on, parent = Event(), Event(), os.getpid()

def look(sample):
    inside.set()
    if os.getpid() == parent:
        go_on.wait(30)
    return int.from_bytes(sample["record"][:8], "little")

dataset = EmlioDataset(sys.argv[1], raw=True, transform=look)
thread = Thread(target=lambda: dataset[3])
thread.start()
inside.wait(30)
child = os.fork()
if child == 0:
    signal.alarm(20)
    right = dataset[7] == 7
    dataset.close()
    os._exit(0 if right else 1)
status = os.waitpid(child, 0)[1]
go_on.set()
thread.join()
print("child", status, "parent", dataset[5])
dataset.close()
"""


def test_a_child_does_not_wait_for_a_thread_of_its_parent(tmp_path: Path) -> None:
    make_dataset(tmp_path / "x", records=10, shards=2)
    script = tmp_path / "look.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    said = run_script(script, str(tmp_path / "x"), timeout_s=60.0, environment={})
    assert "child 0 parent 5" in said
