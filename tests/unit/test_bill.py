from typing import Any

import pytest
from bill import completed, file_hashes

BILL: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "metadata": {"component": {"name": "emlio", "version": "0.1.0"}, "properties": [{"name": "a", "value": "b"}]},
    "components": [{"name": "typing_extensions", "version": "4.16.0"}],
}
REPORT = {
    "install": [
        {
            "metadata": {"name": "Typing.Extensions"},
            "download_info": {"url": "https://host/x.whl", "archive_info": {"hashes": {"sha256": "ee" * 32}}},
        }
    ]
}


def test_every_component_has_the_hash_of_the_file_that_was_installed() -> None:
    made = completed(BILL, file_hashes(REPORT), wheel_sha256="aa" * 32, machine="linux")
    assert made["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "ee" * 32}]
    assert made["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "aa" * 32}]
    assert made["metadata"]["component"]["purl"].endswith("/emlio@0.1.0")


def test_the_bill_says_on_what_it_was_installed_and_keeps_what_it_said() -> None:
    made = completed(BILL, file_hashes(REPORT), wheel_sha256="aa" * 32, machine="linux-x86_64")
    assert made["metadata"]["properties"] == [
        {"name": "a", "value": "b"},
        {"name": "emlio:installed-on", "value": "linux-x86_64"},
    ]
    assert "hashes" not in BILL["components"][0]


def test_a_component_that_no_lock_brought_is_refused() -> None:
    with pytest.raises(ValueError, match="typing-extensions does not"):
        completed(BILL, {}, wheel_sha256="aa" * 32, machine="linux")
