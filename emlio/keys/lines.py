"""Short text files that people write.

Covers: bytes into the lines that say something, with their numbers; errors that name file and line. Does not cover: what a line
means; reading files.
"""

from dataclasses import dataclass

from emlio.errors import ConfigError

__all__ = ["MAX_TEXT_BYTES", "Line", "parse_lines"]

MAX_TEXT_BYTES = 64 << 10
"""Of every file here: eight hundred daemons with their keys, and a rule with more datasets than anybody names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line without its comment, which is not empty.

    Attributes:
        number: counted from 1.
        text: what it says, without blanks around it.
        where: the file's name, for errors.
    """

    number: int
    text: str
    where: str

    def error(self, reason: object) -> ConfigError:
        """An error that names this line. `reason` must not repeat the line unless it cannot be a secret."""
        return ConfigError(f"{self.where}, line {self.number}: {reason}")


def parse_lines(data: bytes, where: str) -> tuple[Line, ...]:
    """The lines of a file; `#` begins a comment.

    Raises:
        ConfigError: too many bytes, or no UTF-8.
    """
    if len(data) > MAX_TEXT_BYTES:
        raise ConfigError(f"{where}: must have at most {MAX_TEXT_BYTES} bytes, has more")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: must be UTF-8 text; byte {error.start} is not") from error
    said = ((number, line.partition("#")[0].strip()) for number, line in enumerate(text.split("\n"), 1))
    return tuple(Line(number=number, text=line, where=where) for number, line in said if line)
