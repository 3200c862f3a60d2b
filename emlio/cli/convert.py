"""`emlio convert`: make a dataset from data in another format."""

import argparse
import sys
import time
from pathlib import Path

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.images.decoding import can_decode
from emlio.index.opening import DatasetPath
from emlio.prepare.convert import ConvertReport, convert
from emlio.prepare.convert_options import DEFAULT_SHARD_BYTES, ConvertOptions
from emlio.prepare.sources.choice import guess_kind, source_kinds, split_source
from emlio.prepare.sources.settings import SourceSettings, TokenizerSettings
from emlio.prepare.targets.target import TARGETS
from emlio.ray import ENGINES, RayHosts
from emlio.tokens import TOKEN_TYPES
from emlio.units import counted, format_duration, format_size, parse_size

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Convert images in class folders, tars, tables, arrays, text, tokens and other data to TFRecord files or WebDataset tars."

_SKIPS_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "source", metavar="SOURCE", help="directory or file to convert, with options if any: SOURCE?OPTION=VALUE"
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="directory of the new dataset")
    parser.add_argument(
        "--from", dest="kind", choices=source_kinds(), help="format of the source (default: detected and printed)"
    )
    parser.add_argument(
        "--to",
        choices=TARGETS,
        default="tfrecord",
        help="tfrecord: TFRecord files (default); wds: WebDataset tars",
    )
    parser.add_argument(
        "--keys",
        choices=("source", "numbers"),
        default="source",
        help="with --to wds: keys are paths, or the keys of tars, where the source has any (source, default), or the "
        "numbers of the items (numbers)",
    )
    _add_source_arguments(parser)
    cut = parser.add_mutually_exclusive_group()
    cut.add_argument("--shard-size", metavar="SIZE", help="approximate size of a shard (default: 256MiB)")
    cut.add_argument("--shards", metavar="N", type=int, help="number of shards, instead of their size")
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        help="shards written in parallel (default: one per core, at least 4; on Ray two per core of the cluster)",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="threads",
        help="threads: shards are written by threads here (default); ray: by all hosts of the Ray cluster at RAY_ADDRESS, "
        "which see SOURCE and OUT under the same paths",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="seed for the order of the records (default: 0)"
    )
    parser.add_argument("--no-shuffle", action="store_true", help="keep the order of the source")
    parser.add_argument(
        "--labels",
        metavar="FILE",
        type=Path,
        help="text file with one class per line, numbered from 0; a readable name may follow after a tab or a synset "
        "(default: class folders by sorted name)",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="stop at an item that cannot be read (default), or skip and list it",
    )
    parser.add_argument(
        "--check",
        choices=("decode", "header"),
        default="decode",
        help="decode each picture, so that training can read what is packed (default, with Pillow), or read headers only",
    )
    parser.add_argument(
        "--transcode", action="store_true", help="make PNG of pictures that training cannot decode, such as GIF"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace a dataset that emlio convert or emlio synth made in OUT; other files there are an error",
    )
    parser.epilog = "After an interruption, run the same command again: finished shards are kept."


def _add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what may be said of a source besides its format."""
    text = parser.add_argument_group("tokens and text")
    text.add_argument(
        "--dtype",
        choices=TOKEN_TYPES,
        metavar="TYPE",
        help="type of the tokens in .bin files without an index, and in the dataset: uint16, uint32, int32, ... (default: "
        "that of the files; with --tokenizer uint16 if all tokens fit, else int32)",
    )
    text.add_argument(
        "--sequence-length",
        metavar="N",
        type=int,
        help="cut records of --from tokens to at most N tokens (default: documents and rows stay whole, flat files are "
        "cut to 2048)",
    )
    text.add_argument(
        "--tokenizer",
        metavar="NAME_OR_FILE",
        help="make tokens of text, with a tokenizer.json or a name at Hugging Face's hub (requires tokenizers)",
    )
    text.add_argument("--text-field", metavar="NAME", help="column with the text (default: text)")
    text.add_argument("--append-eos", action="store_true", help="end each text with the token that ends a document")
    text.add_argument("--eos-token", metavar="TOKEN", help="that token (default: what the tokenizer tells)")
    table = parser.add_argument_group("tables that list files")
    table.add_argument("--file-column", metavar="NAME", help="column with the paths of the files (default: file)")
    table.add_argument(
        "--delimiter",
        metavar="CHARACTER",
        help="separator in a CSV table, tab for a tab (default: the comma, semicolon or tab that is found)",
    )


def _settings(arguments: argparse.Namespace) -> SourceSettings:
    tokenizer: TokenizerSettings | None = None
    if arguments.tokenizer is not None:
        tokenizer = TokenizerSettings(
            name=arguments.tokenizer,
            text_field=arguments.text_field,
            append_eos=arguments.append_eos,
            eos_token=arguments.eos_token,
        )
    elif arguments.text_field is not None or arguments.append_eos or arguments.eos_token is not None:
        raise ConfigError("--text-field, --append-eos and --eos-token must be given with --tokenizer")
    return SourceSettings(
        dtype=arguments.dtype,
        sequence_length=arguments.sequence_length,
        tokenizer=tokenizer,
        file_column=arguments.file_column,
        delimiter=arguments.delimiter,
    )


def run(arguments: argparse.Namespace) -> int:
    """Convert and print a summary."""
    options = _options(arguments)
    if options.check == "decode" and not can_decode():
        print(
            "emlio convert: pictures are not decoded, only their headers are read, as Pillow is not installed: "
            + how_to_install("images"),
            file=sys.stderr,
        )
    begun = time.monotonic_ns()
    try:
        engine = RayHosts(most=options.workers) if arguments.engine == "ray" else None
        report = convert(options, progress=True, engine=engine)
    except KeyboardInterrupt:
        finished = sum(1 for _ in options.out.glob(f"{TARGETS[options.to].summary}*.json"))
        print(
            f"emlio convert: interrupted, {counted(finished, 'finished shard')} in {options.out}. Run the same command "
            "again to continue",
            file=sys.stderr,
        )
        raise
    _print(report, options, time.monotonic_ns() - begun)
    return 0


def _options(arguments: argparse.Namespace) -> ConvertOptions:
    kind: str | None = arguments.kind
    settings = _settings(arguments)
    place = DatasetPath.parse(arguments.source)
    source, given = split_source(place.folder, place.options)
    kind = kind or given.pop("format", None)
    if kind is None:
        if not source.exists():
            raise ConfigError(f"source {source}: no such file or directory")
        kind = guess_kind(source, of_text=settings.tokenizer is not None)
        print(f"{source}: format {kind} (use --from for another)")
    shard_bytes: int | None = None
    if arguments.shards is None:
        shard_bytes = DEFAULT_SHARD_BYTES
        if arguments.shard_size is not None:
            try:
                shard_bytes = parse_size(arguments.shard_size)
            except ConfigError as error:
                raise ConfigError(f"--shard-size {error}") from error
    return ConvertOptions(
        source=source,
        out=arguments.out,
        source_kind=kind,
        source_options=given,
        settings=settings,
        to=arguments.to,
        keys=arguments.keys,
        shard_bytes=shard_bytes,
        shards=arguments.shards,
        workers=arguments.workers,
        seed=arguments.seed,
        shuffle=not arguments.no_shuffle,
        force=arguments.force,
        labels=arguments.labels,
        on_error=arguments.on_error,
        check=arguments.check,
        transcode=arguments.transcode,
    )


def _print(report: ConvertReport, options: ConvertOptions, took_ns: int) -> None:
    out, files = options.out, TARGETS[options.to]
    classes = f" of {counted(report.classes, 'class', 'classes')}" if report.classes else ""
    found = f", {report.shards_found} of them from an earlier run" if report.shards_found else ""
    print(
        f"{out}: {counted(report.records, 'record')}{classes}, {format_size(report.size_bytes)} in "
        f"{counted(report.shards, 'shard')}{found}; "
        f"written and read back in {format_duration(took_ns)}"
    )
    if report.ignored.count:
        print(f"ignored: {counted(report.ignored.count, 'file')} in the source: {report.ignored}")
    if report.skipped:
        items = counted(len(report.skipped), "item")
        print(f"skipped: {items} that could not be read, listed in {out}/{files.skips_name('*')}")
        for line in report.skipped[:_SKIPS_SHOWN]:
            print(f"  {line}")
        if len(report.skipped) > _SKIPS_SHOWN:
            print(f"  and {len(report.skipped) - _SKIPS_SHOWN:,} more")
