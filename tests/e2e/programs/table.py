"""The programs. Each says on standard output what it read; D is the directory, W an empty folder to write in, its own place.

A program of Python is given by its source; others are of the shell. Sources speak of D, W and U, the address of the files for
fsspec.
"""

from dataclasses import dataclass

__all__ = ["PROGRAMS", "Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        name: in the matrix.
        source: of the shell or of Python.
        python: which of both.
        needs: modules of Python, programs, and files of the folder (D/...) without which it is left out.
    """

    name: str
    source: str
    python: bool = False
    needs: tuple[str, ...] = ()


def _shell(name: str, source: str, *needs: str) -> Program:
    return Program(name, source, needs=needs)


def _python(name: str, source: str, *needs: str) -> Program:
    return Program(name, source, python=True, needs=needs)


_SUM = "sha256sum | cut -c1-64"

PROGRAMS = (
    # ---- the shell
    _shell("cat", f'find "$D" -type f -print0 | LC_ALL=C sort -z | xargs -0 cat | {_SUM}'),
    _shell("sha256sum", 'cd "$D" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum'),
    _shell(
        "xargs -P8 cat", f'find "$D/small" -type f -print0 | xargs -0 -P8 -n5 sha256sum | cut -c1-64 | sort | {_SUM}'
    ),
    _shell("cp -r, diff -r", 'cp -r "$D/." copied && diff -r --no-dereference "$D" copied && find copied | wc -l'),
    _shell("cp -a", f'cp -a "$D/text" copied && cd copied && find . -type f -printf "%P %s %T@\\n" | sort | {_SUM}'),
    _shell("cp --reflink, --sparse", f'cp --reflink=auto --sparse=always "$D/big.bin" a && {_SUM} < a'),
    _shell("mv out", 'mv "$D/empty" . 2>&1 | grep -o "Read-only file system"; ls'),
    _shell("tar", f'tar -C "$D" -cf - small text | tar -xf - && cat small/*/* text/* | {_SUM}'),
    _shell(
        "tar --sort, mtime", f'tar -C "$D" --sort=name --owner=0 --group=0 --mode=a-w -cf - small text link | {_SUM}'
    ),
    _shell(
        "rsync -a",
        f'rsync -a "$D/" copied && rsync -anc --itemize-changes "$D/" copied && diff -r --no-dereference "$D" copied && ls -A copied | {_SUM}',
        "rsync",
    ),
    _shell("grep -r", f'cd "$D" && grep -rc needle text | sort && grep -rl "needle 7" text | sort | {_SUM}'),
    _shell(
        "find -type, -size, -newer",
        'cd "$D" && find . -type d | sort && find . -size +4 -type f | sort | head -50 && find text -newer text/1.txt | wc -l && find . -xtype l && find -L text folder-link -name 3.txt',
    ),
    _shell(
        "find -printf",
        f'cd "$D" && find . \\( -type f -o -type l \\) -printf "%y %s %T@ %l %P\\n" | LC_ALL=C sort | {_SUM}',
    ),
    _shell(
        "du, wc, ls",
        'cd "$D" && du -ab --max-depth=0 text/*.txt | sort && wc -c small/*/* | tail -1 && LC_ALL=C ls -a . small && test -x script && test ! -x empty && echo bits',
    ),
    _shell("stat", 'cd "$D" && stat -c "%n %s %F %Y" big.bin link empty text/1.txt && stat -L -c %F link folder-link'),
    _shell(
        "head, tail, less",
        'cd "$D" && head -c 100 big.bin | od -c && tail -c 77 big.bin | od -c && tail -n 2 text/9.txt && less text/2.txt | wc -l',
        "less",
    ),
    _shell(
        "vi -R",
        'cp "$D/text/2.txt" . && vim.tiny -es -u NONE -i NONE -n -R -c "%print" -c "qa!" "$D/text/2.txt"',
        "vim.tiny",
    ),
    _shell(
        "dd iflag=direct",
        f'for size in 4k 64k 1M; do dd if="$D/big.bin" iflag=direct bs=$size status=none | {_SUM}; done',
    ),
    _shell(
        "dd skip, seek",
        f'dd if="$D/big.bin" bs=777 skip=1234 count=99 status=none | {_SUM} && tail -c +8000000 "$D/big.bin" | {_SUM}',
    ),
    _shell(
        "sort, uniq, awk, sed",
        f'cd "$D" && sort text/*.txt | uniq -c && awk "END {{print NR}}" text/*.txt && sed -n 5p text/7.txt',
    ),
    _shell(
        "cmp, split, od, base64",
        f'cd "$D" && cmp big.bin big.bin && split -b 1M big.bin "$W/part" && cat "$W"/part* | {_SUM} && base64 big.bin | {_SUM}',
    ),
    _shell(
        "zip -T, unzip",
        f'zip -T "$D/archives/x.zip" | grep -o OK; unzip -p "$D/archives/x.zip" | {_SUM}',
        "zip",
        "unzip",
    ),
    _shell(
        "gzip",
        f'gzip -dc "$D/archives/text.gz" | {_SUM} && gzip -t "$D/archives/text.gz" && zcat "$D/archives/text.gz" | wc -l',
    ),
    _shell(
        "sqlite3",
        'sqlite3 "file:$D/databases/x.sqlite?mode=ro&immutable=1" "select count(*), sum(id), max(word) from words"',
        "sqlite3",
    ),
    _shell(
        "git status, diff, log",
        'cd "$D/repository" && git -c safe.directory="*" --no-optional-locks status --porcelain && git -c safe.directory="*" diff --stat && git -c safe.directory="*" log --format=%s && git -c safe.directory="*" fsck 2>&1 | grep -v notice; git -c safe.directory="*" status --short',
        "git",
        "D/repository",
    ),
    _shell(
        "git clone",
        'git -c safe.directory="*" clone -q "$D/repository" cloned 2>/dev/null; ls cloned/src | wc -l && git -C cloned rev-parse HEAD',
        "git",
        "D/repository",
    ),
    _shell("script run from there", '"$D/script" argument && sh "$D/script" other'),
    _shell(
        "static C: sendfile, mmap, splice",
        f'"$BIN/c_reader" "$D/big.bin" "$D"/small/*/* "$D/empty" > out; status=$?; {_SUM} < out; exit $status',
        "BIN/c_reader",
    ),
    _shell("static C run from there", f'cp "$BIN/c_reader" . && ./c_reader "$D/text/4.txt" | {_SUM}', "BIN/c_reader"),
    _shell("static Go", f'"$BIN/go_reader" "$D" | LC_ALL=C sort | {_SUM}', "BIN/go_reader"),
    _shell("static Rust", '"$BIN/rust_reader" "$D"', "BIN/rust_reader"),
    _shell(
        "writes refused",
        'cd "$D" || exit 9; for what in "touch new" "touch empty" "rm empty" "mkdir new" "rmdir none" "mv empty other" '
        '"ln empty other" "ln -s empty other" "chmod 600 empty" "truncate -s 9 big.bin" "cp empty new" "mkfifo new"; '
        'do LC_ALL=C $what 2>&1 | grep -o "Read-only file system\\|Permission denied" | head -1; done; ls -A | wc -l',
    ),
    # ---- Python's own library
    _python("open, read", "for p in files(): say(p, open(D + p, 'rb').read())"),
    _python(
        "readinto, pread, preadv",
        """
for p in files('small/1') + ['big.bin']:
    f = os.open(D + p, os.O_RDONLY)
    size = os.fstat(f).st_size
    a, b = bytearray(size // 2), bytearray(size - size // 2)
    say(p, os.pread(f, 100, size // 3), os.preadv(f, [a, b], 0), a, b, os.pread(f, 10, size + 5))
    os.lseek(f, -min(size, 9), os.SEEK_END)
    say(os.read(f, 100))
    os.close(f)
""",
    ),
    _python(
        "text, encodings, iteration",
        "say([line for p in sorted(files('text')) for line in open(D + p, encoding='utf-8')])",
    ),
    _python(
        "mmap",
        """
import mmap
for p in files('small/2') + ['big.bin']:
    with open(D + p, 'rb') as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        m.madvise(mmap.MADV_RANDOM)
        say(p, m[len(m) // 2:], m[:], m.find(b'ab'))
    with open(D + p, 'rb') as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        m[0] = 7
        say(m[:50])
""",
    ),
    _python(
        "scandir, stat",
        """
def walk(folder):
    for e in sorted(os.scandir(folder), key=lambda e: os.fsencode(e.name)):
        s = e.stat(follow_symlinks=False)
        isdir = e.is_dir(follow_symlinks=False)
        say(os.fsencode(e.name), e.is_file(), e.is_symlink(), isdir, 0 if isdir else s.st_size, s.st_mtime_ns, s.st_mode & ~0o222, e.inode() == s.st_ino)
        if isdir: walk(e.path)
walk(D)
""",
    ),
    _python(
        "glob, pathlib",
        "import glob, pathlib\nsay(sorted(os.path.relpath(p, D) for p in glob.glob(D + '**', recursive=True)))\nsay(sorted(str(p.relative_to(D)) for p in pathlib.Path(D).rglob('*.txt')))",
    ),
    _python(
        "os.walk, topdown, bottomup",
        "for up in (True, False):\n  for follow in (True, False): say(sorted((os.fsencode(os.path.relpath(a, D)), sorted(map(os.fsencode, b)), sorted(map(os.fsencode, c))) for a, b, c in os.walk(D, up, followlinks=follow)))",
    ),
    _python(
        "errors of paths",
        """
for path in ('none/x', 'no', 'empty/x', 'x' * 300, 'dangling', 'small', '', 'text/../empty', 'none/../../../../../etc/none', 'folder-link/3.txt'):
    for call in (os.stat, os.lstat, os.listdir, os.readlink, lambda p: open(p).read(3), lambda p: open(p, 'r+').close(), lambda p: os.access(p, os.W_OK)):
        try: r = call(D + path)
        except OSError as e: r = e.errno
        say(path, r if isinstance(r, int | str | bool) else '')
""",
    ),
    _python(
        "lseek HOLE, DATA; statvfs; flock",
        """
import fcntl
f = os.open(D + 'big.bin', os.O_RDONLY)
say(os.lseek(f, 0, os.SEEK_DATA), os.lseek(f, 0, os.SEEK_HOLE))
fcntl.flock(f, fcntl.LOCK_SH), fcntl.flock(f, fcntl.LOCK_UN)
fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
say(os.statvfs(D).f_namemax, bool(os.statvfs(D).f_flag & os.ST_RDONLY))
""",
    ),
    _python(
        "sendfile, copy_file_range, shutil",
        """
import shutil
out = os.open('out', os.O_RDWR | os.O_CREAT)
f = os.open(D + 'big.bin', os.O_RDONLY)
at = 0
while n := os.sendfile(out, f, at, 1 << 20): at += n
say(open('out', 'rb').read())
try:
    at = 0
    while n := os.copy_file_range(f, out, 1 << 20, at, at): at += n
except OSError as e:
    assert e.errno in (18, 95), e
shutil.copytree(D + 'text', 'tree')
say(open('out', 'rb').read(), sorted(os.listdir('tree')), open('tree/5.txt').read())
""",
    ),
    _python(
        "8 forked workers",
        "import multiprocessing as m\nwith m.get_context('fork').Pool(8) as pool: say(pool.map(digest, files(), 7))",
    ),
    _python(
        "32 threads",
        "from concurrent.futures import ThreadPoolExecutor as T\nwith T(32) as pool: say(list(pool.map(digest, files())))",
    ),
    _python(
        "asyncio, to_thread",
        "import asyncio\nasync def main(): return await asyncio.gather(*(asyncio.to_thread(digest, p) for p in files('small')))\nsay(asyncio.run(main()))",
    ),
    _python(
        "zipfile",
        "import zipfile\nz = zipfile.ZipFile(D + 'archives/x.zip')\nsay(z.testzip(), [(n, z.read(n)) for n in z.namelist()])",
    ),
    _python(
        "tarfile, random and streamed",
        "import tarfile\nt = tarfile.open(D + 'archives/shard-0.tar')\nsay([(m.name, t.extractfile(m).read()) for m in reversed(t.getmembers())])\nt = tarfile.open(D + 'archives/shard-0.tar', 'r|')\nsay([(m.name, t.extractfile(m).read()) for m in t])",
    ),
    _python(
        "sqlite3, mode=ro&immutable=1",
        "import sqlite3\nb = sqlite3.connect(f'file:{D}databases/x.sqlite?mode=ro&immutable=1', uri=True)\nsay(b.execute('select * from words where id % 17 = 3 order by word').fetchall(), b.execute('pragma integrity_check').fetchall())\ntry: b.execute('delete from words')\nexcept sqlite3.OperationalError as e: say(e)",
    ),
    _python(
        "sqlite3, mode=ro",
        "import sqlite3\nb = sqlite3.connect(f'file:{D}databases/x.sqlite?mode=ro', uri=True)\nsay(b.execute('select count(*), sum(id) from words').fetchall())",
    ),
    _python("import of a package there", "import sys\nsys.path.insert(0, D)\nimport package\nsay(package.ANSWER)"),
    _python(
        "writes refused, by call",
        """
calls = [lambda: open(D + 'new', 'w'), lambda: open(D + 'empty', 'a'), lambda: open(D + 'big.bin', 'r+'), lambda: os.unlink(D + 'empty'), lambda: os.mkdir(D + 'new'),
    lambda: os.rmdir(D + 'none'), lambda: os.rename(D + 'empty', D + 'x'), lambda: os.link(D + 'empty', D + 'x'), lambda: os.symlink('a', D + 'x'),
    lambda: os.chmod(D + 'empty', 0o600), lambda: os.utime(D + 'empty'), lambda: os.truncate(D + 'big.bin', 3), lambda: os.mkfifo(D + 'x'),
    lambda: os.setxattr(D + 'empty', 'user.x', b'1'), lambda: os.open(D, os.O_TMPFILE | os.O_RDWR)]
for number, call in enumerate(calls):
    try: call(); say(number, 'done')
    except OSError as e: say(number, e.errno in (30, 95) and 'refused' or e.errno)
""",
    ),
    # ---- libraries
    _python("PIL", "from PIL import Image\nfor p in files('pictures'): say(Image.open(D + p).tobytes())", "PIL"),
    _python(
        "np.load",
        "import numpy as np\nfor n in range(4): say(np.load(f'{D}arrays/{n}.npy').tobytes())\nz = np.load(D + 'arrays/all.npz')\nsay(z['a'].tobytes(), z['b'].tobytes())",
    ),
    _python(
        "np.load, mmap_mode",
        "import numpy as np\nfor m in ('r', 'c'):\n  for n in range(4):\n    a = np.load(f'{D}arrays/{n}.npy', mmap_mode=m)\n    say(a[7:90:3].tobytes(), a.sum())",
    ),
    _python(
        "np.fromfile, np.memmap",
        "import numpy as np\nsay(np.fromfile(D + 'arrays/raw.bin', np.int64).tobytes(), np.fromfile(D + 'big.bin', np.uint8, 999, offset=12345).tobytes(), np.memmap(D + 'arrays/raw.bin', np.int64, 'r')[::-7].tobytes())",
    ),
    _python(
        "h5py",
        "import h5py\nf = h5py.File(D + 'arrays/x.h5', 'r')\nsay(f['chunked'][30:400:7].tobytes(), f['plain'][:].tobytes())",
        "h5py",
    ),
    _python("zarr", "import zarr\nsay(zarr.open(D + 'arrays/x.zarr', mode='r')[10:50, ::3].tobytes())", "zarr"),
    _python(
        "pandas: csv, parquet",
        "import pandas as pd\nsay(pd.read_csv(D + 'tables/other/table.csv').to_csv(), pd.read_parquet([D + f'tables/part-{n}.parquet' for n in range(3)]).sort_values('id').to_csv())",
        "pandas",
        "pyarrow",
    ),
    _python(
        "pyarrow: dataset, memory_map, feather",
        "import pyarrow.dataset as d, pyarrow.feather as f, pyarrow.compute as c, pyarrow.parquet as q\nt = d.dataset(D + 'tables', format='parquet', exclude_invalid_files=True).to_table(filter=c.field('id') > 5000)\nsay(t.sort_by('id').to_pydict(), f.read_table(D + 'tables/other/table.feather', memory_map=True)['value'].to_pylist(), q.read_table(D + 'tables/part-1.parquet', memory_map=True, columns=['id']).to_pydict())",
        "pyarrow",
    ),
    _python(
        "datasets: imagefolder",
        "from datasets import load_dataset\nd = load_dataset('imagefolder', data_dir=D + 'pictures', split='train', cache_dir=W + '/cache')\nsay([(r['label'], r['image'].tobytes()) for r in d])",
        "datasets",
        "PIL",
    ),
    _python(
        "datasets: parquet",
        "from datasets import load_dataset\nd = load_dataset('parquet', data_files=[D + f'tables/part-{n}.parquet' for n in range(3)], split='train', cache_dir=W + '/cache')\nsay(d[100:5000:7])",
        "datasets",
    ),
    _python(
        "webdataset",
        "import webdataset as w\nsay([(s['__key__'], s['cls'], s['bin']) for s in w.WebDataset(D + 'archives/shard-0.tar', shardshuffle=False)])",
        "webdataset",
    ),
    _python(
        "safetensors",
        "from safetensors import safe_open\nwith safe_open(D + 'weights/x.safetensors', 'pt') as f: say([(k, f.get_tensor(k).numpy().tobytes(), f.get_slice(k)[5:9].tolist()) for k in sorted(f.keys())])",
        "safetensors",
        "torch",
    ),
    _python(
        "torch.load, mmap",
        "import torch\nfor m in (False, True): say(sorted((k, v.numpy().tobytes()) for k, v in torch.load(D + 'weights/x.pt', mmap=m).items()))",
        "torch",
    ),
    _python(
        "torch DataLoader, ImageFolder, 8 workers",
        """
import torch, torchvision
from torchvision.transforms import v2
if __name__ == '__main__':
    data = torchvision.datasets.ImageFolder(D + 'pictures', torchvision.transforms.Compose([torchvision.transforms.Resize((32, 32)), torchvision.transforms.PILToTensor()]))
    torch.manual_seed(3)
    for epoch in range(2):
        for x, y in torch.utils.data.DataLoader(data, 16, shuffle=True, num_workers=8): say(x.numpy().tobytes(), y.tolist())
""",
        "torch",
        "torchvision",
    ),
    _python(
        "DALI readers.file",
        """
from nvidia.dali import fn, pipeline_def
@pipeline_def(batch_size=16, num_threads=2, device_id=None)
def pipe():
    raw, label = fn.readers.file(file_root=D + 'pictures', random_shuffle=True, seed=5, name='r')
    return raw, fn.decoders.image(raw, device='cpu'), label
p = pipe()
p.build()
for _ in range(6):
    for out in p.run(): say([bytes(memoryview(__import__('numpy').ascontiguousarray(out.at(i)))) for i in range(16)])
""",
        "nvidia.dali",
    ),
    _python(
        "LMDB",
        "import lmdb\nb = lmdb.open(D + 'databases/x.lmdb', readonly=True, lock=False, readahead=False)\nwith b.begin() as t: say(list(t.cursor()), t.get(b'001234'))",
        "lmdb",
    ),
    _python(
        "emlio.aio, direct",
        "from emlio.aio import AioHandle\nb = bytearray(9_000_001)\nwith AioHandle(block_size='128KiB') as h: h.pread(b, D + 'big.bin')\nsay(b)",
    ),
    # ---- without a mount
    _python(
        "fsspec URLs: open, cat, glob",
        "import fsspec\nfs, root = fsspec.core.url_to_fs(U)\nnames = sorted(n[len(root):] for n in fs.glob(root + '/text/*.txt'))\nsay(names, sorted((k[len(root):], v) for k, v in fs.cat(fs.glob(root + '/small/3/*')).items()), fs.info(root + '/big.bin')['size'])\nwith fsspec.open(U + '/big.bin') as f:\n  f.seek(123456)\n  say(f.read(7777))",
        "fsspec",
    ),
    _python(
        "fsspec URLs: pandas, torch.load",
        "import pandas as pd, fsspec, torch\nsay(pd.read_csv(U + '/tables/other/table.csv').to_csv(), pd.read_parquet(U + '/tables/part-2.parquet').to_csv())\nwith fsspec.open(U + '/weights/x.pt') as f: say(sorted((k, v.numpy().tobytes()) for k, v in torch.load(f).items()))",
        "fsspec",
        "pandas",
        "pyarrow",
        "torch",
    ),
)
