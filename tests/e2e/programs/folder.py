"""A dataset's folder with files of the kinds that the programs read."""

import gzip
import importlib
import io
import os
import shutil
import sqlite3
import subprocess
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["make_binaries", "make_folder"]

_C = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **names) {
    for (int at = 1; at < count; at++) {
        struct stat is;
        int file = open(names[at], O_RDONLY);
        if (file < 0 || fstat(file, &is)) return 1;
        posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
        readahead(file, 0, is.st_size);
        off_t from = 0;
        while (from < is.st_size) if (sendfile(1, file, &from, 1 << 20) <= 0) return 2;
        if (is.st_size) {
            const char *all = mmap(0, is.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
            if (all == MAP_FAILED || write(1, all, is.st_size) != is.st_size) return 3;
        }
        int pipes[2];
        if (pipe(pipes)) return 4;
        loff_t at_byte = 0;
        ssize_t moved;
        while ((moved = splice(file, &at_byte, pipes[1], 0, 65536, 0)) > 0)
            while (moved > 0) {
                char part[65536];
                ssize_t got = read(pipes[0], part, sizeof part);
                if (got <= 0 || write(1, part, got) != got) return 5;
                moved -= got;
            }
        if (moved < 0) return 6;
        close(file), close(pipes[0]), close(pipes[1]);
    }
    return 0;
}
"""

_GO = """
package main

import (
	"fmt"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	filepath.WalkDir(os.Args[1], func(path string, entry fs.DirEntry, failed error) error {
		if failed != nil { fmt.Println(failed); return nil }
		if entry.Type().IsRegular() {
			content, failed := os.ReadFile(path)
			info, _ := entry.Info()
			name, _ := filepath.Rel(os.Args[1], path)
			fmt.Println(name, info.Size(), info.ModTime().UnixNano(), sha256.Sum256(content), failed)
		}
		return nil
	})
}
"""

_RUST = """
use std::{env, fs, io::Read, path::Path};
fn walk(folder: &Path, sum: &mut u64) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let kind = fs::symlink_metadata(&path).unwrap();
        if kind.is_dir() { walk(&path, sum) }
        if kind.is_file() {
            let mut content = Vec::new();
            fs::File::open(&path).unwrap().read_to_end(&mut content).unwrap();
            for byte in content { *sum = sum.wrapping_mul(1099511628211) ^ byte as u64 }
        }
    }
}
fn main() { let mut sum = 7; walk(Path::new(&env::args().nth(1).unwrap()), &mut sum); println!("{sum}") }
"""


def _run(*words: object, **options: Any) -> None:
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, timeout=300, **options)


def make_binaries(target: Path) -> None:
    """Build static programs, each for which there is a compiler."""
    target.mkdir()
    (target / "reader.c").write_text(_C)
    (target / "reader.go").write_text(_GO)
    (target / "reader.rs").write_text(_RUST)
    caches = {**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(target / "cache"), "GO111MODULE": "off"}
    for name, words in {
        "c": ["cc", "-static", "-O2", "-o", target / "c_reader", target / "reader.c"],
        "go": ["go", "build", "-o", target / "go_reader", target / "reader.go"],
        "rust": ["rustc", "-O", "-C", "target-feature=+crt-static", "-o", target / "rust_reader", target / "reader.rs"],
    }.items():
        if shutil.which(str(words[0])):
            _run(*words, cwd=target, env=caches if name == "go" else None)
    shutil.rmtree(target / "cache", ignore_errors=True)


def _pictures(folder: Path, random: np.random.Generator) -> None:
    from PIL import Image

    for number in range(96):
        path = folder / f"{('cat', 'dog', 'owl')[number % 3]}/{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        low = random.integers(0, 255, (8, 8, 3), np.uint8)
        Image.fromarray(low).resize((64 + number % 32, 64)).save(path)


def _tables(folder: Path, random: np.random.Generator) -> None:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    (folder / "other").mkdir(parents=True)
    table = pa.table({"id": np.arange(20_000), "value": random.normal(size=20_000), "text": ["row"] * 20_000})
    for part in range(3):
        pa.parquet.write_table(table.slice(part * 6000, 6000), folder / f"part-{part}.parquet", row_group_size=1000)
    pa.feather.write_feather(table, str(folder / "other/table.feather"), compression="uncompressed")
    (folder / "other/table.csv").write_text("id,value\n" + "".join(f"{one},{one * one}\n" for one in range(3000)))


def _arrays(folder: Path, random: np.random.Generator) -> None:
    folder.mkdir()
    for number in range(4):
        np.save(folder / f"{number}.npy", random.normal(size=(300, 100 + number)))
    np.savez_compressed(folder / "all.npz", a=np.arange(1000), b=random.normal(size=500))
    random.integers(0, 1 << 30, 100_003, np.int64).tofile(folder / "raw.bin")
    if find_spec("h5py"):
        with importlib.import_module("h5py").File(folder / "x.h5", "w") as file:
            file.create_dataset("chunked", data=random.normal(size=(500, 64)), chunks=(50, 64), compression="gzip")
            file.create_dataset("plain", data=np.arange(100_000))
    if find_spec("zarr"):
        importlib.import_module("zarr").save(str(folder / "x.zarr"), np.arange(10_000).reshape(100, 100))


def _archives(folder: Path, random: np.random.Generator) -> None:
    folder.mkdir()
    with tarfile.open(folder / "shard-0.tar", "w") as tar:
        for number in range(60):
            for ending, content in (("cls", b"%d" % (number % 5)), ("bin", random.bytes(700 + number))):
                member = tarfile.TarInfo(f"{number:04}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    with zipfile.ZipFile(folder / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"in/{number}.txt", f"member {number}\n" * 50)
    (folder / "text.gz").write_bytes(gzip.compress(b"a line of text\n" * 5000, mtime=0))


def _databases(folder: Path) -> None:
    folder.mkdir()
    with sqlite3.connect(folder / "x.sqlite") as base:
        base.execute("create table words (id integer primary key, word text)")
        base.executemany("insert into words values (?, ?)", [(one, f"word {one * 7919}") for one in range(20_000)])
    base.close()
    if find_spec("lmdb"):
        with (
            importlib.import_module("lmdb").open(str(folder / "x.lmdb"), map_size=1 << 24) as base,
            base.begin(write=True) as changes,
        ):
            for number in range(2000):
                changes.put(b"%06d" % number, b"value %d" % (number * 31))


def _weights(folder: Path) -> None:
    if find_spec("torch"):
        import torch

        folder.mkdir()
        state = {f"layer{one}": torch.arange(50_000, dtype=torch.float32) * one for one in range(4)}
        torch.save(state, folder / "x.pt")
        if find_spec("safetensors"):
            importlib.import_module("safetensors.torch").save_file(state, folder / "x.safetensors")


def _repository(folder: Path) -> None:
    if not shutil.which("git"):
        return
    (folder / "src").mkdir(parents=True)
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.checkStat=minimal"]
    _run("git", "init", "-q", folder)
    _run(*git, "config", "core.checkStat", "minimal")  # numbers of inodes are those of the mount
    _run(*git, "config", "core.trustctime", "false")
    for number in range(80):
        (folder / f"src/{number}.txt").write_text(f"line {number}\n" * 20)
    _run(*git, "add", ".")
    _run(*git, "commit", "-q", "-m", "first")
    (folder / "src/3.txt").write_text("changed\n")
    (folder / "new.txt").write_text("untracked\n")


def make_folder(folder: Path) -> None:
    """Make it; kinds of files whose library is missing are left out."""
    random = np.random.default_rng(7)
    for number in range(500):
        path = folder / f"small/{number % 5}/{number:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.bytes(1 + 37 * number % 3000))
    if find_spec("PIL"):
        _pictures(folder / "pictures", random)
    if find_spec("pyarrow"):
        _tables(folder / "tables", random)
    _arrays(folder / "arrays", random)
    _archives(folder / "archives", random)
    _databases(folder / "databases")
    _weights(folder / "weights")
    _repository(folder / "repository")
    (folder / "text").mkdir()
    for number in range(30):
        (folder / f"text/{number}.txt").write_text(f"needle {number}\nhay\n" * (number * 40))
    (folder / "package").mkdir()
    (folder / "package/__init__.py").write_text("from package.part import ANSWER\n")
    (folder / "package/part.py").write_text("ANSWER = 42\n")
    (folder / "script").write_text('#!/bin/sh\necho "ran with $1"\n')
    (folder / "script").chmod(0o755)
    (folder / "big.bin").write_bytes(random.bytes(9_000_001))
    (folder / "empty").write_bytes(b"")
    (folder / ".hidden").write_text("hidden\n")
    (folder / "none").mkdir()
    (folder / "link").symlink_to("text/3.txt")
    (folder / "folder-link").symlink_to("text")
    (folder / "dangling").symlink_to("text/none")
    (folder / "na me\udcff").write_bytes(b"not UTF-8")
    os.utime(folder / "text/1.txt", ns=(1, 1_500_000_000_123_456_789))
