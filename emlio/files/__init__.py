"""The files below a dataset's folder, listed and read over the network.

    from emlio.files import Files

    with Files("emlio://store1:5555/imagenet") as files:
        files.tree.listdir("train")
        files.read("labels.csv")
        files.read_many([("train/a.jpg", 0, 1024), "train/b.jpg"])

docs/reference/files.md says what each call does. The file system for fsspec is emlio.files.fsspec_library.
"""

from emlio.files.files import Files
from emlio.files.hinting_sampler import HintingSampler
from emlio.files.hints import hint
from emlio.store.tree import Entry, Tree

__all__ = ["Entry", "Files", "HintingSampler", "Tree", "hint"]
