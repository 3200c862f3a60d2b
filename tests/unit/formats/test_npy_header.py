"""The header of a .npy file."""

import io
from typing import Any

import numpy as np
import pytest

from emlio.formats.npy_header import read_npy_header


def _head() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(48, dtype="<u2"))
    return file.getvalue()


class _Disturbed:
    """NumPy's reader of headers, whose parser fails the first times it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
        self._read = np.lib.format.read_array_header_1_0
        self.left = failures
        monkeypatch.setattr(np.lib.format, "read_array_header_1_0", self)

    def __call__(self, file: Any, **options: Any) -> Any:
        if self.left:
            self.left -= 1
            file.read(7)
            raise SystemError("AST constructor recursion depth mismatch (before=57, after=56)")
        return self._read(file, **options)


def test_a_parser_that_another_thread_disturbed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed = _Disturbed(monkeypatch, failures=3)
    header = read_npy_header(_head())
    assert (header.shape, header.dtype, disturbed.left) == ((48,), np.dtype("<u2"), 0)


def test_a_parser_that_never_recovers_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    _Disturbed(monkeypatch, failures=10**6)
    with pytest.raises(SystemError, match="recursion depth"):
        read_npy_header(_head())
