"""Whether anybody else could have put a key folder where it is, by facts that are told."""

import os
import stat
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio.keys.owners import Asker, check_above, check_owner, check_writers, this_process, unnamed_owner

USER, OTHER, UNNAMED = 100_001, 100_002, 65534
KEYS = Path("/data/job/keys")

Facts = dict[str, tuple[int, int | str]]
"""Of each path the owner, and its mode or what it is a link to."""

SOUND: Facts = {"/": (0, 0o755), "/data": (0, 0o755), "/data/job": (USER, 0o755), "/data/job/keys": (USER, 0o700)}


def _found(owner: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))


def _asker(facts: Facts, *, user: int = USER, home: str | None = None, unnamed: int | None = None) -> Asker:
    def look(path: str) -> os.stat_result:
        if path not in facts:
            raise FileNotFoundError(path)
        owner, what = facts[path]
        return _found(owner, stat.S_IFLNK | 0o777 if isinstance(what, str) else stat.S_IFDIR | what)

    return Asker(
        user=user, home=home, unnamed=unnamed, look=look, target=lambda path: str(facts[path][1])
    )  # fmt: skip


def _refusal(facts: Facts, path: Path = KEYS, **asker: int | str | None) -> str:
    with pytest.raises(ConfigError) as caught:
        check_above(path, _asker(facts, **asker))  # type: ignore[arg-type]  # each test says what fits
    return str(caught.value)


def test_folders_of_the_user_and_of_root_that_only_they_may_write_to_are_believed() -> None:
    check_above(KEYS, _asker(SOUND))
    check_above(KEYS, _asker(dict.fromkeys(SOUND, (0, 0o755)), user=0))


@pytest.mark.parametrize("bits", [0o775, 0o757, 0o777, 0o2770])
@pytest.mark.parametrize("above", ["/", "/data", "/data/job"])
def test_a_folder_above_that_others_may_write_to_is_refused_with_its_mode_and_what_to_type(
    above: str, bits: int
) -> None:
    said = _refusal(SOUND | {above: (SOUND[above][0], bits)})
    assert said.startswith(f"{above}: must be writable by its owner only")
    for fact in ("/data/job/keys", f"its mode is {bits:04o}", f"chmod go-w {above}", f"only {USER} or root"):
        assert fact in said


@pytest.mark.parametrize("above", ["/", "/data", "/data/job"])
def test_a_folder_above_of_another_user_is_refused_with_both_names(above: str) -> None:
    said = _refusal(SOUND | {above: (OTHER, 0o755)})
    assert said.startswith(f"{above}: must belong to {USER} or root")
    assert "/data/job/keys" in said
    assert f"belongs to {OTHER}" in said


def test_root_does_not_believe_what_lies_in_a_users_folder() -> None:
    said = _refusal(SOUND, user=0)
    assert said.startswith(
        f"/data/job: must belong to root, because it is on the path to /data/job/keys, belongs to {USER}."
    )


def test_in_a_sticky_folder_of_root_only_the_owner_can_rename_what_is_there() -> None:
    sticky = SOUND | {"/data": (0, 0o1777)}
    check_above(KEYS, _asker(sticky))
    assert "/data/job: must belong to" in _refusal(sticky | {"/data/job": (OTHER, 0o755)})
    assert "/data/job: must belong to" in _refusal(sticky | {"/data/job": (OTHER, "/"), "/keys": (USER, 0o700)})
    assert "/data: must belong to" in _refusal(sticky | {"/data": (OTHER, 0o1777)})


def test_nothing_is_asked_of_the_folders_above_the_users_own_home() -> None:
    facts: Facts = {
        "/": (OTHER, 0o777),
        "/home": (OTHER, 0o777),
        "/home/u": (USER, 0o755),
        "/home/u/keys": (USER, 0o700),
        "/home/v": (USER, 0o755),
    }
    check_above(Path("/home/u/keys"), _asker(facts, home="/home/u"))
    assert "/home/u: must be writable by its owner only" in _refusal(
        facts | {"/home/u": (USER, 0o775)}, Path("/home/u/keys"), home="/home/u"
    )
    assert "/: must belong to" in _refusal(facts, Path("/home/u/keys"), home="/home/v")
    assert "/: must belong to" in _refusal(facts, Path("/home/u/keys"), home="/home/gone")
    assert "/: must belong to" in _refusal(facts, Path("/home/u/keys"))


def test_a_home_that_is_a_link_is_the_home_it_leads_to() -> None:
    facts: Facts = {
        "/": (0, 0o755),
        "/home": (0, 0o755),
        "/home/u": (0, "/big/u"),
        "/big": (OTHER, 0o775),
        "/big/u": (USER, 0o755),
        "/big/u/keys": (USER, 0o700),
    }
    check_above(Path("/home/u/keys"), _asker(facts, home="/home/u"))
    assert "/big: must belong to" in _refusal(facts, Path("/home/u/keys"))


def test_a_link_is_believed_as_far_as_the_folders_that_it_lies_in_and_leads_through() -> None:
    facts = SOUND | {"/etc": (0, 0o755), "/etc/keys": (0, "../data/job/./keys")}
    check_above(Path("/etc/keys"), _asker(facts))
    assert "/etc: must be writable by its owner only" in _refusal(facts | {"/etc": (0, 0o777)}, Path("/etc/keys"))
    assert "/data/job: must be writable by its owner only" in _refusal(
        facts | {"/data/job": (USER, 0o777)}, Path("/etc/keys")
    )
    assert "/etc/keys: must belong to" in _refusal(facts | {"/etc/keys": (OTHER, "/data/job/keys")}, Path("/etc/keys"))


def test_links_in_a_circle_and_ways_that_end_are_not_followed_for_ever() -> None:
    facts: Facts = {"/": (0, 0o755), "/a": (0, "/b"), "/b": (0, "/a")}
    assert _refusal(facts, Path("/a")) == "/a: must be a folder, is a broken link"
    with pytest.raises(FileNotFoundError):
        check_above(Path("/c/keys"), _asker(facts))


def test_in_a_container_that_does_not_know_the_hosts_root_a_folder_above_may_be_its() -> None:
    facts = SOUND | {"/": (UNNAMED, 0o755), "/data": (UNNAMED, 0o755)}
    check_above(KEYS, _asker(facts, unnamed=UNNAMED))
    assert "/: must belong to" in _refusal(facts)
    assert "/data: must be writable by its owner only" in _refusal(facts | {"/data": (UNNAMED, 0o777)}, unnamed=UNNAMED)
    # There anybody may have made what lies in it.
    sticky = facts | {"/data": (UNNAMED, 0o1777)}
    check_above(KEYS, _asker(sticky, unnamed=UNNAMED))
    assert "/data/job: must belong to" in _refusal(sticky | {"/data/job": (UNNAMED, 0o755)}, unnamed=UNNAMED)


def test_the_folder_itself_must_be_the_users_or_roots_and_not_even_sticky_for_others() -> None:
    asker = _asker({}, unnamed=UNNAMED)
    for owner in (USER, 0):
        check_owner(KEYS, _found(owner, 0o700), asker)
    for owner in (OTHER, UNNAMED):
        with pytest.raises(
            ConfigError, match=f"must belong to {USER} or root, belongs to .*chown {USER} /data/job/keys"
        ):
            check_owner(KEYS, _found(owner, 0o700), asker)
    check_writers(KEYS, _found(USER, 0o755))
    with pytest.raises(ConfigError, match=r"its mode is 1777\. Run: chmod go-w /data/job/keys"):
        check_writers(KEYS, _found(USER, 0o1777))


@pytest.mark.parametrize(
    ("uid_map", "number"),
    [
        ("         0          0 4294967295\n", None),  # no namespace, or a container of root's
        ("0 0 1\n998 998 1\n", None),  # systemd's PrivateUsers
        ("1000 1000 1\n", UNNAMED),  # Apptainer
        ("0 1000 1\n1 100000 65536\n", UNNAMED),  # rootless Podman and Docker
        ("", None),
    ],
)
def test_owners_without_a_name_count_only_where_the_root_outside_has_none(uid_map: str, number: int | None) -> None:
    assert unnamed_owner(uid_map, "65534\n") == number


def test_this_process_is_its_effective_user() -> None:
    assert this_process().user == os.geteuid()
    assert this_process() is this_process()
