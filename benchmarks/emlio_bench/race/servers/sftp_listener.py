"""SFTP without SSH: python -m emlio_bench.race.servers.sftp_listener ADDRESS PORT PROGRAM."""

import signal
import socket
import subprocess
import sys
from types import FrameType

__all__ = ["main"]


def main(address: str, port: str, program: str) -> None:
    """Serve until this process is ended."""
    signal.signal(signal.SIGTERM, _end)
    children: list[subprocess.Popen[bytes]] = []
    try:
        with socket.create_server((address, int(port)), backlog=64) as listener:
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    children.append(
                        subprocess.Popen(
                            [program, "-R", "-l", "QUIET"], stdin=connection.fileno(), stdout=connection.fileno()
                        )
                    )
                children = [child for child in children if child.poll() is None]
    finally:
        for child in children:
            child.kill()
            child.wait()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
