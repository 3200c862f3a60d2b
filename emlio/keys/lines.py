"""Lines of short text files that users edit."""

import msgspec

from emlio.errors import ConfigError

__all__ = ["MAX_TEXT_BYTES", "Line", "parse_lines"]

MAX_TEXT_BYTES = 64 << 10
"""The size limit of every file here. It is enough for eight hundred daemons with their keys, and
for any realistic rule.
"""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A non-empty line without its comment.

    Attributes:
        number: counted from 1.
        text: the content, without surrounding white space.
        where: the file's name, for errors.
    """

    number: int
    text: str
    where: str

    def error(self, reason: object) -> ConfigError:
        """Return an error that names this line.

        `reason` must not repeat the line unless it cannot be a secret.
        """
        return ConfigError(f"{self.where}, line {self.number}: {reason}")


def parse_lines(data: bytes, where: str) -> tuple[Line, ...]:
    """Split a file into lines; `#` begins a comment.

    Raises:
        ConfigError: the file is too long, or not UTF-8.
    """
    if len(data) > MAX_TEXT_BYTES:
        raise ConfigError(f"{where}: must have at most {MAX_TEXT_BYTES} bytes, has more")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: must be UTF-8 text; byte {error.start} is not") from error
    said = ((number, line.partition("#")[0].strip()) for number, line in enumerate(text.split("\n"), 1))
    return tuple(Line(number=number, text=line, where=where) for number, line in said if line)
