from pathlib import Path

import pytest

from emlio.energy.recording.node_use import NodeUse, NodeWatch, counted_interfaces
from emlio_testing.energy_machines import write_proc


def write_interface(sysfs: Path, name: str, *, rx: int = 0, tx: int = 0, kind: int = 1, real: bool = False) -> Path:
    folder = sysfs / "class/net" / name
    (folder / "statistics").mkdir(parents=True)
    (folder / "statistics/rx_bytes").write_text(f"{rx}\n")
    (folder / "statistics/tx_bytes").write_text(f"{tx}\n")
    (folder / "type").write_text(f"{kind}\n")
    if real:
        (folder / "device").mkdir()
    return folder


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write_proc(tmp_path / "proc", busy=500, idle=1_500, steal=20, memory_gb=16)
    with (tmp_path / "proc/meminfo").open("a") as file:
        file.write("MemFree:  1 kB\nMemAvailable:   5000000 kB\n")
    return tmp_path / "proc"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    folder = tmp_path / "sys"
    folder.mkdir()
    return folder


def used(proc: Path, sysfs: Path) -> NodeUse:
    watch = NodeWatch(proc=proc, sysfs=sysfs, ticks_per_s=100)
    try:
        return watch.read()
    finally:
        watch.close()


def test_what_the_kernel_says_becomes_nanoseconds_and_bytes(proc: Path, sysfs: Path) -> None:
    write_interface(sysfs, "eth0", rx=1_000, tx=30, real=True)
    write_interface(sysfs, "eth1", rx=2**41, tx=4, real=True)
    assert used(proc, sysfs) == NodeUse(
        cpu_busy_ns=5_000_000_000,
        cpu_steal_ns=200_000_000,
        cpu_total_ns=20_200_000_000,
        net_rx_bytes=2**41 + 1_000,
        net_tx_bytes=34,
        memory_bytes=(16_000_000_000 // 1024 - 5_000_000) * 1024,
    )


def test_each_reading_is_a_new_one(proc: Path, sysfs: Path) -> None:
    folder = write_interface(sysfs, "eth0", rx=1, real=True)
    watch = NodeWatch(proc=proc, sysfs=sysfs, ticks_per_s=100)
    assert watch.read().net_rx_bytes == 1
    (folder / "statistics/rx_bytes").write_text("77\n")
    write_proc(proc, busy=501)
    assert watch.read().net_rx_bytes == 77
    assert watch.read().cpu_busy_ns == 5_010_000_000
    watch.close()
    watch.close()


def test_a_byte_is_counted_once(sysfs: Path) -> None:
    write_interface(sysfs, "lo", kind=772)
    write_interface(sysfs, "eth0", real=True)
    write_interface(sysfs, "bond0")
    write_interface(sysfs, "veth1a")
    (sysfs / "class/net/bonding_masters").write_text("bond0\n")
    assert counted_interfaces(sysfs) == ("eth0",)


def test_in_a_container_what_leads_out_counts(sysfs: Path) -> None:
    write_interface(sysfs, "lo", kind=772)
    write_interface(sysfs, "eth0")
    write_interface(sysfs, "ifb0")
    (write_interface(sysfs, "br0") / "bridge").mkdir()
    assert counted_interfaces(sysfs) == ("eth0",)


def test_what_is_not_there_is_none_and_not_zero(tmp_path: Path, sysfs: Path) -> None:
    empty = NodeUse(
        cpu_busy_ns=None,
        cpu_steal_ns=None,
        cpu_total_ns=None,
        net_rx_bytes=None,
        net_tx_bytes=None,
        memory_bytes=None,
    )
    assert used(tmp_path / "nothing", sysfs) == empty


def test_a_part_of_the_network_is_not_taken_for_the_whole(proc: Path, sysfs: Path) -> None:
    write_interface(sysfs, "eth0", rx=5, tx=6, real=True)
    (write_interface(sysfs, "eth1", rx=7, tx=8, real=True) / "statistics/rx_bytes").unlink()
    found = used(proc, sysfs)
    assert (found.net_rx_bytes, found.net_tx_bytes) == (None, 14)


def test_this_machine_says_what_it_does() -> None:
    watch = NodeWatch(proc=Path("/proc"), sysfs=Path("/sys"))
    found = watch.read()
    watch.close()
    assert found.cpu_busy_ns is not None
    assert found.cpu_total_ns is not None
    assert 0 < found.cpu_busy_ns < found.cpu_total_ns
    assert found.memory_bytes is not None
    assert found.memory_bytes > 2**20
