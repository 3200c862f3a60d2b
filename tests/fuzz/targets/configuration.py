"""What a daemon is told: its TOML file and its environment, through the command itself.

byte 0   bit 0: a right [datasets] table before what follows; bit 1: the last line is VARIABLE=VALUE of the environment
rest     the file
"""

import io
import os
from contextlib import redirect_stderr
from unittest.mock import patch

from emlio.daemon import cli
from tests.fuzz.memory_file import memory_file
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """The command would serve, or says in a line that begins with its name why it cannot."""
    flags, text = data[0] if data else 0, data[1:]
    environment: dict[bytes, bytes] = {}
    if flags & 2:
        text, _, last = text.rpartition(b"\n")
        name, _, value = last.replace(b"\0", b"").partition(b"=")
        environment[b"EMLIO_DAEMON_" + name] = value
    if flags & 1:
        text = b'datasets.x = "/data/x"\n' + text
    said = io.StringIO()
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    with (
        memory_file(text) as path,
        patch.dict(os.environ, variables),
        patch.object(cli, "serve") as serve,
        patch.object(cli, "set_up_logging"),
        redirect_stderr(said),
    ):
        status = cli.main(["--config", str(path)])
    assert (status, serve.called) in ((0, True), (2, False))
    if status:
        assert said.getvalue().startswith("emlio-daemon: error: ")
    else:
        (config,) = serve.call_args.args
        for source in config.data:
            os.fsencode(source.directory)
            assert "\0" not in str(source.directory)


TARGET = Target(
    fuzz=fuzz,
    raises=(),
    most_bytes=4096,
    tokens=(
        b"[daemon]\n",
        b"[datasets]\n",
        b'bind = "tcp://[::1]:5555"\n',
        b"memory = ",
        b'memory = "1.5GiB"\n',
        b'bind = "tcp://a..b:5555"\n',
        b"insecure = true\n",
        b"data-port = 6000\n",
        b'keys = "~nobody-of-that-name"\n',
        b"workers = 4\n",
        b"heartbeat-timeout = 1.5\n",
        b"MEMORY=",
        b"BIND=tcp://",
        b"KEYS=~",
        b"LANES=auto",
        b"\\u0000",
        b"\xc2\xb2",
        b"[" * 64,
        b"9" * 512,
        b"inf",
        b"nan",
        b"1979-05-27",
    ),
)
