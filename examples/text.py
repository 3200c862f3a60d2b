"""From raw text to a small language model: train a tokenizer, convert, serve, train. Needs torch and tokenizers.

    python examples/text.py                    # writes a text of its own
    python examples/text.py --text BOOK.txt    # paragraphs of yours are the documents

Covers: a tokenizer trained on the text, `emlio convert --tokenizer`, packed rows with labels by the recipe "causal". Does not
cover: a model worth training, the model itself (examples/tokens.py), several ranks (as in examples/train.py).

What to note:

* The dataset knows the type of its tokens, uint16 here. Batches have int64, which embeddings and losses take.
* Labels are the tokens themselves: the model's output at one place is compared with the label of the next one. They are
  -100, which the loss leaves out, at padding and where a document begins.
* `segments` number the documents of a row, so that attention stays inside of each.
"""

# mypy: disable-error-code="misc"
# The examples are checked where torch and tokenizers are not installed.

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokens import SUBJECTS, VERBS, Model, count, daemon
from torch import nn

from emlio import EmlioLoader, TokenBatches

END = "<|endoftext|>"


def documents(text: Path | None, number: int) -> Iterator[str]:
    """The paragraphs of a file, or sentences drawn by chance."""
    if text is not None:
        try:
            read = text.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            sys.exit(f"text: --text must be a file of UTF-8 text: {error}")
        parts = [part.strip() for part in read.split("\n\n") if part.strip()]
        if not parts:
            sys.exit(f"text: --text must have paragraphs, {text} has none")
        yield from parts
        return
    draws = random.Random(1)
    for _ in range(number):
        sentences = 1 + int(draws.lognormvariate(1.0, 0.6))
        yield " ".join(
            f"{draws.choice(SUBJECTS)} {draws.choice(VERBS)} {draws.choice(SUBJECTS)}.".capitalize()
            for _ in range(sentences)
        )


def write_lines(path: Path, texts: list[str]) -> None:
    """One JSON object a line, as most collections of text come."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def train_tokenizer(path: Path, texts: list[str], vocabulary: int) -> int:
    """Write a tokenizer.json; return how many tokens there are."""
    library: Any = import_module("tokenizers")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return int(tokenizer.get_vocab_size())


def convert(lines: Path, tokenizer: Path, out: Path) -> None:
    """The same as the command: emlio convert --tokenizer TOKENIZER --append-eos LINES OUT."""
    emlio = str(Path(sys.executable).with_name("emlio"))
    subprocess.run([emlio, "convert", "--tokenizer", str(tokenizer), "--append-eos", str(lines), str(out)], check=True)


def loss_of(model: Model, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss over each token that has one before it in its document."""
    taken = {"tokens": batch["input_ids"], "segments": batch["segments"], "positions": batch["position_ids"]}
    scores, labels = model(taken)[:, :-1], batch["labels"][:, 1:]
    return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())  # leaves out labels of -100


def train(address: str, vocabulary: int, chosen: argparse.Namespace) -> list[float]:
    """These lines are what a training script needs of EMLIO."""
    torch.manual_seed(0)
    model = Model(vocabulary, chosen.pack)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    tokens = TokenBatches(pack=chosen.pack, pool=512, recipe="causal")
    with EmlioLoader(address, tokens=tokens, batch_size=chosen.rows, seed=42, to="torch") as loader:
        while len(losses) < chosen.steps:
            for batch in loader:
                loss = loss_of(model, batch)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
                if len(losses) % 25 == 1:
                    print(f"step {len(losses):5}  epoch {loader.epoch}  loss {losses[-1]:.3f}")
                if len(losses) == chosen.steps:
                    break
        print(f"loss {losses[0]:.3f} before, {losses[-1]:.3f} after {len(losses)} steps")
        print(loader.stats())
    return losses


def arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="Train a tokenizer and a small language model on raw text.")
    parser.add_argument(
        "--text", type=Path, help="a text file, paragraphs are documents (default: written for this run)"
    )
    parser.add_argument(
        "--documents", type=count, default=2000, help="documents to write without --text (default: 2000)"
    )
    parser.add_argument("--vocabulary", type=count, default=320, help="tokens of the tokenizer (default: 320)")
    parser.add_argument("--steps", type=count, default=100, help="default: 100")
    parser.add_argument("--pack", type=count, default=128, help="tokens in a row (default: 128)")
    parser.add_argument("--rows", type=count, default=8, help="rows in a batch (default: 8)")
    return parser.parse_args()


def main() -> int:
    """Run; 0 when the model learned something from what came."""
    chosen = arguments()
    # A shell's kill must not leave the daemon behind: as an exception it passes the `finally` of `daemon`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    with TemporaryDirectory() as name:
        folder = Path(name)
        texts = list(documents(chosen.text, chosen.documents))
        write_lines(folder / "text.jsonl", texts)
        vocabulary = train_tokenizer(folder / "tokenizer.json", texts, chosen.vocabulary)
        convert(folder / "text.jsonl", folder / "tokenizer.json", folder / "data")
        with daemon(folder / "data", folder / "ready.json") as address:
            losses = train(address, vocabulary, chosen)
    print(f"{len(texts):,} documents, {vocabulary} tokens, {time.monotonic() - started:.0f} s")
    if not losses[-1] < 0.7 * losses[0]:
        print("text: the loss did not fall, which it should", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
