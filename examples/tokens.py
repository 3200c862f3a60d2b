"""A small language model trained on packed rows of tokens that a daemon pushes. Needs torch.

    python examples/tokens.py                                                # writes documents, starts a daemon, trains
    python examples/tokens.py --address emlio://HOST:PORT/DATASET --vocabulary 50257       # int32 records of your own

Covers: writing records of tokens, rows packed without attention across documents, what padding costs. Does not cover: a
model worth training, several ranks (as in examples/train.py).

What to note:

* A record is the bytes of an array of int32 and nothing else. `frame` makes of it what a TFRecord file holds; the daemon
  indexes such files when it starts.
* `segments` number the documents in a row from 1, and are 0 where there is none: they say who may look at whom, and which
  token is the next one of the same document. `positions` begin at 0 in each.
"""

# mypy: disable-error-code="misc"
# The examples are checked where torch is not installed.

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

from emlio import EmlioLoader, TokenBatches
from emlio.tfrecord import frame

ALPHABET = " .abcdefghijklmnopqrstuvwxyz"
SUBJECTS = ("the cat", "a dog", "my friend", "the old king", "every child", "a grey horse")
VERBS = ("sees", "follows", "dreams of", "waits for", "sings to", "forgets")
START_LIMIT_S = 30.0


def write_documents(directory: Path, records: int, shards: int = 4) -> None:
    """Documents of a few sentences, some of many; each character is a token."""
    directory.mkdir(parents=True)
    draws = random.Random(1)
    for shard in range(shards):
        with (directory / f"text-{shard:05d}-of-{shards:05d}.tfrecord").open("wb") as file:
            for _ in range(shard, records, shards):
                count = 1 + int(draws.lognormvariate(0.5, 0.8))
                text = "".join(
                    f"{draws.choice(SUBJECTS)} {draws.choice(VERBS)} {draws.choice(SUBJECTS)}. " for _ in range(count)
                )
                file.write(frame(np.array([ALPHABET.index(letter) for letter in text], dtype="<i4").tobytes()))


@contextmanager
def daemon(directory: Path, ready: Path) -> Iterator[str]:
    """The address at which a daemon serves the directory while the context lasts."""
    command = [str(Path(sys.executable).with_name("emlio-daemon")), "--data", f"text={directory}"]
    process = subprocess.Popen([*command, "--bind", "tcp://127.0.0.1:0", "--ready-file", str(ready)])
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("tokens: the daemon did not start")
            time.sleep(0.02)
        yield json.loads(ready.read_text())["endpoint"].replace("tcp://", "emlio://") + "/text"
    finally:
        process.terminate()
        process.wait()


class Block(nn.Module):
    """Attention where the mask allows it, then two layers for each token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """One step of the values, (rows, tokens, width)."""
        rows, tokens, width = values.shape
        parts = self.attention(self.before_attention(values)).view(rows, tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        values = values + self.join(seen.transpose(1, 2).reshape(rows, tokens, width))
        return values + torch.Tensor(self.layers(self.before_layers(values)))


class Model(nn.Module):
    """A causal transformer of two blocks."""

    def __init__(self, vocabulary: int, row_tokens: int, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(row_tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(2))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """(rows, tokens, vocabulary): how likely which token comes next."""
        segments = batch["segments"]
        same = segments[:, None, :, None] == segments[:, None, None, :]  # of the same document, for every head
        mask = same & torch.ones(same.shape[-2:], dtype=torch.bool, device=same.device).tril()
        values = self.tokens(batch["tokens"]) + self.places(batch["positions"])
        for block in self.blocks:
            values = block(values, mask)
        return torch.Tensor(self.out(values))


def loss_of(model: Model, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Of every token that has a next one in its document."""
    segments = batch["segments"]
    has_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    scores, wanted = model(batch)[:, :-1][has_next], batch["tokens"][:, 1:][has_next].long()
    return nn.functional.cross_entropy(scores, wanted)


def train(address: str, chosen: argparse.Namespace) -> list[float]:
    """These lines are what a training script needs of EMLIO."""
    torch.manual_seed(0)
    model = Model(chosen.vocabulary, chosen.pack)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    places = filled = 0
    tokens = TokenBatches(pack=chosen.pack, pool=chosen.pool)
    started = time.monotonic()
    with EmlioLoader(address, tokens=tokens, batch_size=chosen.rows, seed=42, to="torch") as loader:
        while len(losses) < chosen.steps:
            for batch in loader:
                if (largest := int(batch["tokens"].max())) >= chosen.vocabulary:
                    sys.exit(
                        f"tokens: --vocabulary must be above all tokens, got {chosen.vocabulary} for token {largest}"
                    )
                loss = loss_of(model, batch)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
                places += batch["tokens"].numel()
                filled += int((batch["segments"] > 0).sum())
                if len(losses) % 50 == 1:
                    print(f"step {len(losses):5}  epoch {loader.epoch}  loss {losses[-1]:.3f}")
                if len(losses) == chosen.steps:
                    break
        print(f"loss {losses[0]:.3f} before, {losses[-1]:.3f} after {len(losses)} steps")
        print(
            f"{filled / (time.monotonic() - started):,.0f} tokens/s, {1 - filled / places:.1%} of the places are padding"
        )
        print(loader.stats())
    return losses


def count(text: str) -> int:
    """A number of the command line: 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Train a small language model on packed tokens that a daemon pushes.")
    parser.add_argument("--address", help="emlio://HOST:PORT/DATASET (default: written and served for this run)")
    parser.add_argument("--vocabulary", type=count, default=len(ALPHABET), help=f"default: {len(ALPHABET)}")
    parser.add_argument("--records", type=count, default=4000, help="documents to write (default: 4000)")
    parser.add_argument("--steps", type=count, default=200, help="default: 200")
    parser.add_argument("--pack", type=count, default=128, help="tokens in a row (default: 128)")
    parser.add_argument("--rows", type=count, default=8, help="rows in a batch (default: 8)")
    parser.add_argument("--pool", type=count, default=1024, help="records to pack together (default: 1024)")
    chosen = parser.parse_args()
    if chosen.address is None and chosen.vocabulary < len(ALPHABET):
        parser.error(f"--vocabulary must be at least {len(ALPHABET)} for the documents of this run")
    return chosen


def main() -> int:
    """Run; 0 when the model learned something from what came."""
    chosen = arguments()
    # A shell's kill must not leave the daemon behind: as an exception it passes the `finally` above.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if chosen.address is not None:
        losses = train(chosen.address, chosen)
    else:
        with TemporaryDirectory() as folder:
            write_documents(Path(folder) / "text", chosen.records)
            with daemon(Path(folder) / "text", Path(folder) / "ready.json") as address:
                losses = train(address, chosen)
    if not losses[-1] < 0.7 * losses[0]:
        print("tokens: the loss did not fall, which it should", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
