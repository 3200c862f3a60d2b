"""The key folder on a real file system: modes, owners, links, two writers at once."""

import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from emlio.errors import ConfigError
from emlio.keys import allow_folder
from emlio.keys.folder import KeyFolder
from emlio.keys.key import PublicKey
from emlio.keys.known_daemons import DaemonPlace

ONE, TWO = PublicKey(raw=b"1" * 32), PublicKey(raw=b"2" * 32)
STORE = DaemonPlace(host="store1", port=5555)
WRITERS = 8
NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")
as_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "settings" / "emlio")


@pytest.fixture
def made(folder: KeyFolder) -> KeyFolder:
    assert folder.make("train1")
    return folder


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def at_once(call: Callable[[int], object]) -> list[object]:
    """What eight threads get that begin together; errors are results."""
    barrier = Barrier(WRITERS)

    def one(number: int) -> object:
        barrier.wait(10)
        try:
            return call(number)
        except ConfigError as error:
            return error

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(one, range(WRITERS)))


# ---- the pair -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_pair_is_written_for_its_owner_alone_whatever_the_umask(folder: KeyFolder, umask: int) -> None:
    folder.path.parent.mkdir()
    before = os.umask(umask)
    try:
        assert folder.make("train1")
        folder.allow("a", ONE)
        folder.trust(STORE, ONE)
    finally:
        os.umask(before)
    assert mode(folder.path) == mode(folder.clients_path) == 0o700
    assert mode(folder.secret_path) == 0o600
    assert mode(folder.public_path) == mode(folder.daemons_path) == mode(folder.clients_path / "a.key") == 0o644
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"secret.key", "public.key", "clients", "daemons", ".lock"}


def test_a_pair_is_read_as_it_was_written(made: KeyFolder) -> None:
    pair = made.pair()
    assert str(pair.public) in made.public_path.read_text()
    assert pair.secret.reveal() in made.secret_path.read_text()
    assert pair.secret.reveal() not in made.public_path.read_text()


def test_a_pair_is_never_replaced(made: KeyFolder) -> None:
    before = made.secret_path.read_bytes(), made.public_path.read_bytes()
    assert not made.make("other")
    assert (made.secret_path.read_bytes(), made.public_path.read_bytes()) == before


def test_of_those_who_make_a_pair_at_once_one_does(folder: KeyFolder) -> None:
    assert sorted(at_once(lambda number: folder.make(f"host{number}")), key=bool) == [False] * (WRITERS - 1) + [True]
    pair = folder.pair()
    assert str(pair.public) in folder.public_path.read_text()


def test_a_public_key_that_a_crash_left_out_is_written_later(made: KeyFolder) -> None:
    before = made.public_path.read_bytes()
    made.public_path.unlink()
    assert f"{made.pair().public}\n".encode() in before
    assert not made.make("train1")
    assert made.public_path.read_bytes() == before


def test_a_public_key_alone_is_not_replaced(made: KeyFolder) -> None:
    made.secret_path.unlink()
    assert "its secret key" in refusal(lambda: made.make("train1"))
    assert not made.secret_path.exists()


def test_the_public_key_of_another_pair_is_noticed(made: KeyFolder) -> None:
    made.public_path.write_text(f"{ONE}\n")
    assert f"must hold the public key of secret.key, {ONE.fingerprint}" not in refusal(made.pair)
    assert f"holds {ONE.fingerprint}" in refusal(made.pair)


def test_without_a_pair_it_says_how_to_make_one(folder: KeyFolder) -> None:
    made_by = f"emlio keygen --folder {folder.path}"
    assert refusal(folder.pair).endswith(f"this host has no key. Make one: {made_by}")


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o601, 0o666])
def test_a_secret_key_that_others_can_get_at_is_refused_with_what_to_type(made: KeyFolder, bits: int) -> None:
    made.secret_path.chmod(bits)
    assert f"its mode is {bits:04o}. Run chmod 600 {made.secret_path}" in refusal(made.pair)
    made.secret_path.chmod(0o400)
    assert made.pair()


def test_a_folder_that_others_can_write_to_is_refused(made: KeyFolder) -> None:
    made.path.chmod(0o770)
    for call in (
        made.pair,
        made.known_daemons,
        lambda: made.make("a"),
        lambda: made.trust(STORE, ONE),
        lambda: made.allow("a", ONE),
    ):
        assert f"Run: chmod go-w {made.path}" in refusal(call)
    made.path.chmod(0o755)
    assert made.pair()


def test_a_folder_above_that_others_can_write_to_is_refused(made: KeyFolder) -> None:
    above = made.path.parent
    above.chmod(0o777)
    for call in (made.pair, made.known_daemons, lambda: made.make("a"), lambda: made.allow("a", ONE)):
        assert f"{above}: must be writable by its owner only, because it is on the path to {made.path}" in refusal(call)
    above.chmod(0o1777)
    assert made.pair(), "nobody else can rename what lies in a sticky folder"


@as_root
def test_a_folder_of_somebody_else_is_refused_and_so_is_one_in_a_folder_of_somebody_else(made: KeyFolder) -> None:
    os.chown(made.path, NOBODY, -1)
    for call in (made.pair, made.known_daemons, lambda: made.make("a"), lambda: made.allow("a", ONE)):
        assert f"{made.path}: must belong to root, belongs to" in refusal(call)
    os.chown(made.path, 0, -1)
    os.chown(made.path.parent, NOBODY, -1)
    for call in (made.pair, made.known_daemons, lambda: made.make("a"), lambda: made.allow("a", ONE)):
        assert f"{made.path.parent}: must belong to root, because it is on the path to {made.path}" in refusal(call)
    made.path.parent.chmod(0o1777)
    assert f"{made.path.parent}: must belong to root, because" in refusal(made.pair)
    os.chown(made.path.parent, 0, -1)
    assert made.pair()


def test_a_link_in_a_folder_that_others_can_write_to_is_refused_though_it_leads_to_a_sound_one(
    made: KeyFolder, tmp_path: Path
) -> None:
    link = tmp_path / "links" / "emlio"
    link.parent.mkdir()
    link.symlink_to(made.path)
    assert KeyFolder(link).pair() == made.pair()
    link.parent.chmod(0o777)
    assert f"{link.parent}: must be writable by its owner only" in refusal(KeyFolder(link).pair)


def test_folders_above_that_are_made_can_be_written_to_by_the_user_alone_whatever_the_umask(folder: KeyFolder) -> None:
    before = os.umask(0o002)
    try:
        assert folder.make("train1")
    finally:
        os.umask(before)
    assert mode(folder.path.parent) == 0o755
    assert mode(folder.path) == 0o700


def test_a_link_is_no_secret_key(made: KeyFolder, tmp_path: Path) -> None:
    made.secret_path.rename(tmp_path / "elsewhere")
    made.secret_path.symlink_to(tmp_path / "elsewhere")
    assert "must be a regular file, is a link" in refusal(made.pair)


def test_neither_a_pipe_nor_a_folder_is_a_secret_key(made: KeyFolder) -> None:
    made.secret_path.unlink()
    os.mkfifo(made.secret_path, 0o600)
    assert "must be a regular file" in refusal(made.pair)
    made.secret_path.unlink()
    made.secret_path.mkdir(0o700)
    assert "must be a regular file" in refusal(made.pair)


@as_root
def test_a_secret_key_of_somebody_else_is_refused(made: KeyFolder) -> None:
    os.chown(made.secret_path, NOBODY, -1)
    said = refusal(made.pair)
    assert "must belong to root, belongs to" in said
    assert f"chown root {made.secret_path}" in said


@as_user
def test_a_folder_that_cannot_be_written_is_named(made: KeyFolder) -> None:
    made.path.chmod(0o500)
    try:
        assert f"{made.daemons_path}: cannot be written: " in refusal(lambda: made.trust(STORE, ONE))
    finally:
        made.path.chmod(0o700)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[:-5] + "\n", "secret.key, line 2: a secret key must be emliosecret1 and 58 characters"),
        (lambda text: text.replace("emliosecret1", "emlio1"), "secret.key, line 2: a secret key must be emliosecret1"),
        (lambda text: "", "secret.key: must hold one key on a line of its own, holds 0 lines"),
        (lambda text: text + text, "secret.key: must hold one key on a line of its own, holds 2 lines"),
        (lambda text: "#" * 70_000, "secret.key: must have at most 65536 bytes"),
    ],
    ids=["cut", "renamed", "empty", "twice", "long"],
)
def test_a_damaged_secret_key_is_refused_and_not_shown(
    made: KeyFolder, change: Callable[[str], str], reason: str
) -> None:
    secret = made.pair().secret.reveal()
    made.secret_path.write_text(change(made.secret_path.read_text()))
    said = refusal(made.pair)
    assert reason in said
    assert secret[12:20] not in said


# ---- clients --------------------------------------------------------------------------------------------------------


def test_who_was_allowed_is_in_until_revoked(folder: KeyFolder) -> None:
    folder.allow("a", ONE, ("x",))
    folder.allow("b", TWO)
    folder.allow("a", ONE, ("x", "y-*"))
    allowed = allow_folder.AllowFolder(folder.clients_path).load()
    assert [(rule.name, rule.datasets) for rule in allowed.rules] == [("a", ("x", "y-*")), ("b", ("*",))]
    folder.revoke("a")
    assert allow_folder.AllowFolder(folder.clients_path).load().find(ONE) is None
    assert "no client of this name" in refusal(lambda: folder.revoke("a"))
    folder.allow("c", ONE)


def test_a_name_keeps_its_key_and_a_key_its_name(folder: KeyFolder) -> None:
    folder.allow("a", ONE)
    assert refusal(lambda: folder.allow("a", TWO)).endswith("first run: emlio revoke a")
    assert "this key is already allowed, under the name a" in refusal(lambda: folder.allow("b", ONE))
    assert [path.name for path in folder.clients_path.iterdir()] == ["a.key"]


def test_a_file_that_cannot_be_used_is_not_overwritten_and_can_be_revoked(folder: KeyFolder) -> None:
    folder.allow("a", ONE)
    (folder.clients_path / "a.key").write_text("hello\n")
    assert "exists and is not valid" in refusal(lambda: folder.allow("a", ONE))
    folder.allow("b", TWO)
    folder.revoke("a")
    folder.allow("a", ONE)


def test_a_name_that_is_a_path_touches_nothing(made: KeyFolder) -> None:
    made.allow("a", ONE)
    (made.path / "x.key").write_text("x")
    for call in (lambda: made.revoke("../x"), lambda: made.allow("../x", TWO), lambda: made.revoke("../secret")):
        assert "a client's name must be" in refusal(call)
    assert (made.path / "x.key").read_text() == "x"


def test_one_key_allowed_under_many_names_at_once_gets_one(folder: KeyFolder) -> None:
    answers = at_once(lambda number: folder.allow(f"client{number}", ONE))
    assert answers.count(()) == 1
    assert all("this key is already allowed" in str(answer) for answer in answers if answer != ())
    assert len(allow_folder.AllowFolder(folder.clients_path).load().rules) == 1


# ---- daemons --------------------------------------------------------------------------------------------------------


def test_daemons_trusted_at_once_are_all_known(folder: KeyFolder) -> None:
    places = [DaemonPlace(host=f"store{number}") for number in range(WRITERS)]
    assert at_once(lambda number: folder.trust(places[number], ONE)) == [True] * WRITERS
    known = folder.known_daemons()
    assert {daemon.place for daemon in known.daemons} == set(places)


def test_a_daemon_keeps_its_key_until_it_is_replaced_on_purpose(folder: KeyFolder) -> None:
    assert folder.known_daemons().daemons == ()
    assert folder.trust(STORE, ONE)
    assert not folder.trust(STORE, ONE)
    assert "--replace store1:5555" in refusal(lambda: folder.trust(STORE, TWO))
    assert folder.known_daemons().find("store1", 5555) == ONE
    assert folder.trust(STORE, TWO, replace=True)
    assert folder.known_daemons().find("store1", 5555) == TWO


def test_a_list_of_daemons_that_others_can_write_is_refused(folder: KeyFolder) -> None:
    folder.trust(STORE, ONE)
    folder.daemons_path.chmod(0o664)
    for call in (folder.known_daemons, lambda: folder.trust(STORE, ONE)):
        assert f"Run: chmod go-w {folder.daemons_path}" in refusal(call)


def test_a_list_that_could_not_be_read_again_is_not_written(folder: KeyFolder) -> None:
    folder.trust(STORE, ONE)
    full = folder.daemons_path.read_bytes() + b"#" * ((64 << 10) - folder.daemons_path.stat().st_size - 20)
    folder.daemons_path.write_bytes(full)
    assert "at most 65536 bytes" in refusal(lambda: folder.trust(DaemonPlace(host="b"), ONE))
    assert folder.daemons_path.read_bytes() == full


def test_a_key_folder_that_is_a_file_is_named(folder: KeyFolder) -> None:
    folder.path.parent.mkdir()
    folder.path.write_text("")
    for call in (lambda: folder.make("a"), folder.pair, folder.known_daemons):
        assert str(folder.path) in refusal(call)
    shutil.rmtree(folder.path.parent)
