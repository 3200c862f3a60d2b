"""Train ResNet-50, VGG-19 or a tiny network on pictures that daemons push; take it as the beginning of your own script.

    torchrun --nproc-per-node 4 examples/train.py emlio://store1:5555/imagenet --model resnet50 --amp --checkpoint run.pt --resume

Covers: one process or many (DDP), mixed precision, checkpoints from which another number of ranks can go on, evaluation, a clean
end at SIGTERM. Does not cover: the pictures (train_data.py), network and checkpoint file (train_model.py), how ranks talk
(train_ranks.py).
"""

import argparse
import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from train_data import DECODERS, Batch, Pictures
from train_model import (
    MODELS,
    SCHEDULES,
    Learner,
    Schedule,
    derived_seed,
    random_state,
    read_checkpoint,
    restore_random_state,
    write_checkpoint,
)
from train_ranks import Ranks, Stop

from emlio.errors import ConfigError, EmlioError
from emlio.progress import Progress
from emlio.units import parse_duration_ns

STOPPED = 128 + signal.SIGTERM


class Training:
    """One run: what a checkpoint holds, and the loop over it."""

    def __init__(
        self, options: argparse.Namespace, ranks: Ranks, stop: Stop, data: Pictures, held: Pictures | None
    ) -> None:
        self._options, self._ranks, self._stop, self._data, self._held = options, ranks, stop, data, held
        self._learner = Learner(
            model=options.model,
            classes=options.classes,
            schedule=Schedule(
                kind=options.schedule,
                peak=options.learning_rate * options.batch_size * ranks.size / 256,
                warm_up=min(5.0, options.epochs / 4) if options.warm_up is None else options.warm_up,
                epochs=options.epochs,
            ),
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            label_smoothing=options.label_smoothing,
            mixed_precision=options.amp,
            device=ranks.device,
        )
        self._hold_s = parse_duration_ns(options.simulate_compute) / 1e9 if options.simulate_compute else None
        self._epoch_samples = data.loader.records
        self._steps = 0
        if options.resume and self._has_checkpoint():
            self._restore()
        self._first_step = self._steps
        self._log = None
        if options.step_log is not None:
            self._log = os.open(options.step_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def save(self) -> None:
        """All ranks take part, rank 0 writes; none continues before the file is there."""
        if self._options.checkpoint is None:
            return
        states = self._ranks.collect(random_state(self._ranks.device))
        if self._ranks.rank == 0:
            content = {
                "model": self._options.model,
                "learner": self._learner.state(),
                "random": states,
                "steps": self._steps,
                "epoch_samples": self._epoch_samples,
                "loader": self._data.loader.state_dict(),
            }
            write_checkpoint(self._options.checkpoint, content)
        self._ranks.meet()

    def _has_checkpoint(self) -> bool:
        found = self._ranks.totals([self._options.checkpoint.exists()])[0]
        if found not in (0, self._ranks.size):
            raise ConfigError(
                f"all {self._ranks.size} ranks must see {self._options.checkpoint}, and {found:.0f} of them do: "
                "it must lie in a folder that all hosts share"
            )
        return found > 0

    def _restore(self) -> None:
        path: Path = self._options.checkpoint
        content = read_checkpoint(path, self._options.model)
        try:
            self._data.loader.load_state_dict(content["loader"])
            self._learner.restore(content["learner"])
        except EmlioError as error:
            raise ConfigError(f"{path} does not fit this run: {error}") from error
        self._steps, self._epoch_samples = content["steps"], content["epoch_samples"]
        if len(content["random"]) == self._ranks.size:
            restore_random_state(content["random"][self._ranks.rank], self._ranks.device)
        else:  # the generators of other ranks are of no use: begin new ones, unlike those before
            torch.manual_seed(derived_seed(self._options.seed, self._ranks.rank, self._ranks.size, self._steps))

    # ---- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> int:
        """All epochs that are left; the process's status."""
        loader = self._data.loader
        while loader.epoch < self._options.epochs:
            line = self._epoch(loader.epoch)
            if line is None:
                self.save()
                return 0 if self._is_long_enough else STOPPED
            self.save()
            if self._held is not None:
                seen = self._evaluate(self._held)
                if seen is None:
                    return STOPPED
                line += f"  evaluation top-1 {seen[0] / seen[1]:.2%} of {seen[1]:,.0f}"
            if self._ranks.rank == 0:
                print(line, flush=True)
        if self._ranks.rank == 0:
            kept = self._options.checkpoint or "none, --checkpoint FILE keeps one"
            print(
                f"trained {self._steps:,} steps to the end of epoch {loader.epoch - 1}; checkpoint: {kept}", flush=True
            )
        return 0

    @property
    def _is_long_enough(self) -> bool:
        limit = self._options.max_steps
        return limit is not None and self._steps - self._first_step >= limit

    def _epoch(self, number: int) -> str | None:
        """One epoch, or the rest of one; what to say of it, or None where the run ends before it does."""
        loader, every = self._data.loader, self._options.checkpoint_every
        tally = torch.zeros(3, dtype=torch.float64, device=self._ranks.device)  # loss, right answers, pictures
        begun = time.monotonic()
        with ExitStack() as stack:
            shown = self._ranks.rank == 0
            bar = stack.enter_context(Progress(f"epoch {number}", loader.remaining)) if shown else None
            for batch in self._data:
                stopping = self._ranks.ask(self._stop.wished)
                seen = self._hold(batch) if self._hold_s is not None else self._step(batch)
                tally += seen
                self._steps += 1
                if self._log is not None:
                    self._write_log(number, batch, seen)
                if bar is not None:
                    bar.add(1)
                if stopping() or self._is_long_enough:
                    return None
                if every and self._steps % every == 0:
                    self.save()
        stats, elapsed = loader.epoch_stats(), time.monotonic() - begun
        loss, right, count, wait, busy = self._ranks.totals([*tally.tolist(), stats.wait_ns, stats.busy_ns])
        if not count:
            learned = "was complete when the checkpoint was saved"
        elif self._hold_s is not None:
            learned = "compute simulated"
        else:
            learned = f"loss {loss / count:.4f}  top-1 {right / count:.2%}"
        waited = wait / max(wait + busy, 1)
        return (
            f"epoch {number}  {learned}  {count / elapsed:,.0f} images/s over {self._ranks.size} rank(s)  "
            f"waited {waited:.0%}  {stats.verdict}"
        )

    def _step(self, batch: Batch) -> torch.Tensor:
        state = self._data.loader.state_dict()
        share = int(state["consumed"]) / self._epoch_samples
        images, labels = self._data.prepare(batch)
        return self._learner.step(images, labels, int(state["epoch"]) + min(share, 1.0))

    def _hold(self, batch: Batch) -> torch.Tensor:
        """As long as a step of the network would take, and as tied to the other ranks."""
        time.sleep(self._hold_s or 0.0)
        self._ranks.meet()
        return torch.tensor([0.0, 0.0, len(batch)], dtype=torch.float64, device=self._ranks.device)

    def _write_log(self, epoch: int, batch: Batch, seen: torch.Tensor) -> None:
        loss = float(seen[0]) / len(batch) if self._hold_s is None else None
        line = {"rank": self._ranks.rank, "epoch": epoch, "step": self._steps - 1, "ids": batch.ids, "loss": loss}
        assert self._log is not None
        os.write(self._log, (json.dumps(line) + "\n").encode())  # one call: lines of several ranks do not mix

    def _evaluate(self, held: Pictures) -> list[float] | None:
        """Right answers and pictures over all ranks, each picture counted once; None where the run is to end."""
        tally = torch.zeros(2, dtype=torch.float64, device=self._ranks.device)
        steps = len(held.loader)
        for step, batch in enumerate(held):
            stopping = self._ranks.ask(self._stop.wished)
            # A tail smaller than the number of ranks begins the order again for the last of them.
            repeated = held.loader.stats().repeated_records if step == steps - 1 else 0
            if self._ranks.rank < self._ranks.size - repeated:
                tally += self._learner.examine(*held.prepare(batch))
            if stopping():
                return None
        return self._ranks.totals(tally.tolist())

    def close(self) -> None:
        """End the log."""
        if self._log is not None:
            os.close(self._log)


def _pictures(options: argparse.Namespace, address: str, device: torch.device, *, training: bool) -> Pictures:
    return Pictures(
        address,
        batch_size=options.batch_size,
        image_size=options.image_size,
        classes=options.classes,
        training=training,
        seed=options.seed,
        prefetch=options.prefetch,
        device=device,
        decoder=options.decoder,
    )


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="train.py", description="Train a network on pictures that daemons push.")
    add = parser.add_argument
    add("address", help="emlio://HOST:PORT[,HOST:PORT...]/DATASET, or a directory of this host")
    add("--decoder", choices=DECODERS, default="pillow", help="pillow, by threads, or NVIDIA DALI (default: pillow)")
    add("--eval", metavar="ADDRESS", help="a dataset to measure on after each epoch")
    add("--model", choices=MODELS, default="resnet50", help="default: resnet50; tiny is for tests")
    add("--classes", metavar="N", type=int, default=1000, help="labels are in [0, N) (default: 1000)")
    add("--image-size", metavar="N", type=int, default=224, help="width and height for the network (default: 224)")
    add("--epochs", metavar="N", type=int, default=90, help="default: 90")
    add("--batch-size", metavar="N", type=int, default=64, help="of each rank (default: 64)")
    add("--learning-rate", metavar="X", type=float, help="for 256 pictures a step over all ranks (0.1; vgg19: 0.01)")
    add("--schedule", choices=SCHEDULES, default="cosine", help="of the learning rate (default: cosine)")
    add("--warm-up", metavar="EPOCHS", type=float, help="default: 5, or a quarter of a short run")
    add("--momentum", metavar="X", type=float, default=0.9, help="default: 0.9")
    add("--weight-decay", metavar="X", type=float, default=5e-5, help="default: 5e-5")
    add("--label-smoothing", metavar="X", type=float, default=0.0, help="default: 0")
    add("--amp", action="store_true", help="compute in bfloat16, or in float16 on a GPU that lacks it")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU if there is one")
    add("--seed", metavar="N", type=int, default=0, help="of the order of the data and of the network (default: 0)")
    add("--deterministic", action="store_true", help="the same run gives the same network, bit by bit; slower on a GPU")
    add("--prefetch", metavar="SIZE", default="128MiB", help="what a rank may take off the wire ahead (128MiB)")
    add("--checkpoint", metavar="FILE", type=Path, help="saved after each epoch and at SIGTERM; all ranks must see it")
    add("--checkpoint-every", metavar="STEPS", type=int, default=0, help="and after so many steps")
    add("--resume", action="store_true", help="go on from the checkpoint if it is there, also with other ranks")
    add("--max-steps", metavar="N", type=int, help="save and end after N steps of this process")
    add("--simulate-compute", metavar="TIME", help="hold each step that long instead of computing; 50ms, for example")
    # Not --log: torchrun would take it for one of its own options, although it stands behind the script's name.
    add("--step-log", metavar="FILE", type=Path, help="append JSON lines: each rank's records and loss in each step")
    options = parser.parse_args()
    if options.checkpoint is None and (options.resume or options.checkpoint_every):
        parser.error("--resume and --checkpoint-every need --checkpoint FILE")
    if options.learning_rate is None:
        options.learning_rate = MODELS[options.model]
    return options


def main() -> int:
    """Run; 0 at the end, 143 after SIGTERM (torchrun makes 1 of it), 1 when something is wrong that a message explains."""
    options = arguments()
    stop = Stop()
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not options.deterministic
    try:
        with ExitStack() as stack:
            ranks = Ranks(options.device)
            stack.callback(ranks.close)
            torch.manual_seed(derived_seed(options.seed, ranks.rank))
            data = stack.enter_context(_pictures(options, options.address, ranks.device, training=True))
            held = None
            if options.eval is not None:
                held = stack.enter_context(_pictures(options, options.eval, ranks.device, training=False))
            training = Training(options, ranks, stop, data, held)
            stack.callback(training.close)
            return training.run()
    except EmlioError as error:
        print(f"train.py: rank {os.environ.get('RANK', '0')}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
