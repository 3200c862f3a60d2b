"""The commands about keys as people use them: two hosts that get to know each other, and what goes wrong on the way.

Covers: `emlio keygen`, `allow`, `revoke`, `trust` and `keys` in processes of their own. Does not cover: connections with keys.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from emlio.keys.key import PublicKey
from emlio_testing.commands import Ended, run_emlio

DEADLINE_S = 60
OTHER = PublicKey(raw=b"2" * 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host with a home of its own."""

    home: Path

    def emlio(self, *words: str, **variables: str) -> Ended:
        return run_emlio(*words, home=self.home, timeout_s=DEADLINE_S, environment=variables)

    def done(self, *words: str) -> str:
        ended = self.emlio(*words)
        assert ended.status == 0, ended.err
        return ended.out

    def refused(self, *words: str) -> str:
        ended = self.emlio(*words)
        assert (ended.status, ended.out) == (2, "")
        assert ended.err.startswith(f"emlio {words[0]}: error: ")
        assert ended.err.count("\n") == 1
        return ended.err

    @property
    def folder(self) -> Path:
        return self.home / ".config" / "emlio"


@pytest.fixture
def store(tmp_path: Path) -> Host:
    (tmp_path / "store").mkdir()
    return Host(home=tmp_path / "store")


@pytest.fixture
def train(tmp_path: Path) -> Host:
    (tmp_path / "train").mkdir()
    return Host(home=tmp_path / "train")


def test_two_hosts_get_to_know_each_other(store: Host, train: Host) -> None:
    ours, theirs = store.done("keygen").strip(), train.done("keygen", "--name", "train1").strip()
    assert "# The public key of train1" in (train.folder / "public.key").read_text()
    assert PublicKey.parse(ours) != PublicKey.parse(theirs)
    short = PublicKey.parse(theirs).fingerprint
    assert store.done("allow", "train1", theirs, "--datasets", "imagenet,coco-*") == (
        f"train1 ({short}) may read imagenet, coco-*\n"
    )
    assert train.done("trust", "Store1:5555", ours).startswith("trusted store1:5555 with the key ")
    assert train.done("trust", "store1:5555", ours) == "store1:5555 is already trusted with this key\n"
    assert store.done("keys").splitlines() == [
        f"folder    {store.folder}",
        f"own key   {ours}",
        "clients   1",
        f"  train1  {short}  imagenet, coco-*",
        "daemons   0",
    ]
    assert train.done("keys").splitlines()[2:] == [
        "clients   0",
        "daemons   1",
        f"  store1:5555  {PublicKey.parse(ours).fingerprint}",
    ]
    assert store.done("revoke", "train1") == "train1 is no longer allowed to read anything\n"
    assert "clients   0" in store.done("keys").splitlines()


def test_a_second_keygen_prints_the_key_that_is_there(store: Host) -> None:
    first, second = store.emlio("keygen"), store.emlio("keygen")
    assert (first.status, second.status) == (0, 0)
    assert first.out == second.out
    assert first.err == f"wrote {store.folder}/secret.key (keep it here) and {store.folder}/public.key\n"
    assert second.err == f"{store.folder} already has a key pair, with the public key:\n"


def test_keygens_that_race_print_one_key(store: Host) -> None:
    words = [sys.executable, "-c", "import sys; from emlio.cli import main; sys.exit(main())", "keygen"]
    environment = {**os.environ, "EMLIO_HOME": str(store.folder)}
    racing = [
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ends = [process.communicate(timeout=DEADLINE_S) for process in racing]
    assert [process.returncode for process in racing] == [0] * 4
    assert len({out for out, _ in ends}) == 1
    assert sum(err.startswith("wrote ") for _, err in ends) == 1


def test_a_secret_key_is_never_printed(store: Host, train: Host) -> None:
    train.done("keygen")
    lines = (train.folder / "secret.key").read_text().splitlines()
    (secret,) = [line for line in lines if line.startswith("emliosecret1")]
    for words in (
        ("allow", "train1", secret),
        ("allow", secret, str(OTHER)),
        ("revoke", secret),
        ("trust", "store1", secret),
        ("trust", secret, str(OTHER)),
    ):
        said = store.refused(*words)
        assert "a secret key" in said
        assert secret[12:18] not in said
    assert not (store.folder / "clients").exists()
    (train.folder / "daemons").write_text(f"store1 {secret}\n")
    listed = train.emlio("keys")
    assert listed.status == 1
    assert secret[12:18] not in listed.out + listed.err


def test_a_key_that_lost_a_character_is_refused(store: Host) -> None:
    assert "64 in all, this one has 63" in store.refused("allow", "a", str(OTHER)[:-1])
    assert "Copy the public key again" in store.refused("trust", "a", str(OTHER)[:-2] + "aa")


def test_another_key_for_a_known_daemon_wants_a_word_for_it(train: Host) -> None:
    train.done("trust", "store1", train.done("keygen").strip())
    said = train.refused("trust", "store1", str(OTHER))
    assert "is already trusted with another key" in said
    assert (
        train.done("trust", "--replace", "store1", str(OTHER)) == f"trusted store1 with the key {OTHER.fingerprint}\n"
    )


def test_the_list_says_what_is_wrong_with_any_file(store: Host) -> None:
    store.done("keygen")
    store.done("allow", "good", str(OTHER))
    (store.folder / "clients" / "bad.key").write_text("hello\n")
    (store.folder / "daemons").write_text("hello\n")
    (store.folder / "secret.key").chmod(0o644)
    listed = store.emlio("keys")
    assert listed.status == 1
    assert listed.out.splitlines()[1:4] == [
        "own key   not usable",
        "clients   1",
        f"  good  {OTHER.fingerprint}  all datasets",
    ]
    said = listed.err.splitlines()
    assert all(line.startswith("emlio keys: ") for line in said)
    assert [next(name for name in ("secret.key", "bad.key", "daemons") if name in line) for line in said] == [
        "secret.key",
        "bad.key",
        "daemons",
    ]


def test_a_host_without_anything_lists_nothing(store: Host) -> None:
    assert store.done("keys").splitlines() == [
        f"folder    {store.folder}",
        "own key   none, make one with: emlio keygen",
        "clients   0",
        "daemons   0",
    ]
    assert not store.folder.exists()


def test_the_folder_is_the_one_that_is_named(store: Host, tmp_path: Path) -> None:
    assert store.emlio("keygen", EMLIO_HOME=str(tmp_path / "a")).status == 0
    assert store.emlio("keygen", XDG_CONFIG_HOME=str(tmp_path / "b")).status == 0
    assert store.emlio("keygen", "--folder", str(tmp_path / "c"), EMLIO_HOME=str(tmp_path / "a")).status == 0
    keys = {(tmp_path / name / "public.key").read_text() for name in ("a", "b/emlio", "c")}
    assert len(keys) == 3
    assert not store.folder.exists()


@pytest.mark.parametrize("command", ["keygen", "allow", "revoke", "trust", "keys"])
def test_help_shows_an_example(store: Host, command: str) -> None:
    shown = store.done(command, "--help")
    assert f"example:\n  emlio {command}" in shown
