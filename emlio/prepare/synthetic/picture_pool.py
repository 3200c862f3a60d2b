"""The few encoded pictures from which a synthetic image dataset is made.

Covers: drawing and encoding them in several threads, making copies distinct. Pillow is imported
here. Does not cover: which record gets which picture (emlio.prepare.synth).
"""

import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.prepare.synthetic.image import draw_picture
from emlio.progress import Progress

__all__ = ["PicturePool", "numbered_picture", "pool_size"]

_MOST = 256
_FEWEST = 32
_RECORDS_EACH = 64
"""A picture takes some 60 ms to draw, a record 0.3 ms to write. With these limits, drawing soon
takes less time than writing.
"""

_COMMENT = b"\xff\xfe"
_TEXT = b"emlio synthetic record %012d"


def pool_size(records: int) -> int:
    """Return how many pictures are drawn for this many records."""
    return min(max(_FEWEST, min(records // _RECORDS_EACH, _MOST)), records)


class PicturePool:
    """Encoded pictures by number, each ready for the insertion of a record's number.

    Attributes:
        pictures: each as the part before its comment and the part after it.
    """

    def __init__(
        self, *, pictures: int, width: int, height: int, seed: int, workers: int, progress: bool = False
    ) -> None:
        encode = _encoder()
        line = Progress("drawing pictures", pictures) if progress else None
        stop = threading.Event()

        def make(number: int) -> tuple[bytes, bytes]:
            if stop.is_set():
                return b"", b""
            encoded = encode(width, height, seed, number)
            # JFIF requires its own segment first; a comment may follow it.
            after = 4 + int.from_bytes(encoded[4:6], "big")
            if line is not None:
                line.add(1)
            return encoded[:after], encoded[after:]

        threads = ThreadPoolExecutor(workers, thread_name_prefix="emlio-pictures")
        try:
            futures = [threads.submit(make, number) for number in range(pictures)]
            self.pictures: tuple[tuple[bytes, bytes], ...] = tuple(future.result() for future in futures)
        finally:
            stop.set()
            threads.shutdown(wait=True, cancel_futures=True)
            if line is not None:
                line.close()

    def encoded_size_bytes(self, number: int) -> int:
        """Return the size of a picture that contains a record's number."""
        return len(numbered_picture(self.pictures[number], 0))


def numbered_picture(picture: tuple[bytes, bytes], record: int) -> bytes:
    """Return a copy of a picture with the record's number in a JPEG comment.

    Its pixels are unchanged.
    """
    text = _TEXT % record
    return b"".join((picture[0], _COMMENT, (len(text) + 2).to_bytes(2, "big"), text, picture[1]))


def _encoder() -> Callable[[int, int, int, int], bytes]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            f"encoding images requires Pillow, which is not installed: {how_to_install('images')}. --kind opaque and "
            "--kind example do not require it"
        ) from error

    def encode(width: int, height: int, seed: int, number: int) -> bytes:
        picture = draw_picture(width, height, seed, number)
        buffer = io.BytesIO()
        Image.fromarray(picture.pixels).save(buffer, "JPEG", quality=picture.quality)
        return buffer.getvalue()

    return encode
