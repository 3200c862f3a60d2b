"""Keys between a daemon and a loader: who gets data and who does not, and what each is told.

Covers: no key, another's, a daemon's that is not the one expected, keys taken away while a job runs, datasets that are not for
everybody, lanes, each way to protect data. Does not cover: floods and nonsense (tests/e2e/test_bad_peers.py), the commands.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, EmlioError, RefusedError, RemoteProtocolError
from emlio.keys.folder import KeyFolder
from emlio.wire.seal import lane_token, new_secret
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.ports import free_ports
from emlio_testing.processes import settles
from tests.e2e.attacks.insiders import lane_in

RECORDS = 600


class House:
    """A storage host with keys, a training host with keys, and two datasets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.gpu, self.other = (self.keys(name) for name in ("store", "gpu", "other"))
        self.records = make_dataset(folder / "open", records=RECORDS, shards=3, payload=900)
        make_dataset(folder / "closed", records=50, shards=1, payload=100)
        self.store.allow("gpu", self.gpu.pair().public, ("open",))
        self.other.allow("gpu", self.gpu.pair().public)

    def keys(self, name: str) -> KeyFolder:
        keys = KeyFolder(self.folder / f"keys-{name}")
        keys.make(name)
        return keys

    @contextmanager
    def daemon(self, **options: Any) -> Iterator[int]:
        """Serves both; the port."""
        usual: dict[str, Any] = {
            "bind": Endpoint(host="127.0.0.1", port=0),
            "keys": self.store.path,
            "heartbeat_timeout": 2_000_000_000,
            "memory": 8 << 20,
            "message_size": 65536,
        }
        data = tuple(DatasetSource(name=name, directory=self.folder / name) for name in ("open", "closed"))
        with Daemon(DaemonConfig(data=data, **(usual | options))) as daemon:
            yield int(daemon.endpoint.rsplit(":", 1)[1])

    def loader(self, port: int, dataset: str = "open", **options: Any) -> EmlioLoader:
        usual: dict[str, Any] = {
            "batch_size": 20,
            "raw": True,
            "ids": True,
            "to": "numpy",
            "timeout": "10s",
            "prefetch": "1MiB",
            "keys": str(self.gpu.path),
            "daemon_key": str(self.store.pair().public),
        }
        return EmlioLoader(f"emlio://127.0.0.1:{port}/{dataset}", **loader_arguments(**(usual | options)))

    def check_epoch(self, loader: EmlioLoader) -> None:
        seen = {
            number: bytes(record)
            for batch in loader
            for number, record in zip(batch["__id__"].tolist(), batch["record"], strict=True)
        }
        assert seen == dict(enumerate(self.records))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Nobody may change its keys but where they are put back."""
    return House(tmp_path_factory.mktemp("trust"))


@pytest.mark.parametrize(
    ("setting", "protection"),
    [("auto", "aes-256-gcm"), ("aead", "aes-256-gcm"), ("off", "clear")],
)
def test_a_client_that_is_known_gets_all_records_however_they_are_protected(
    house: House, setting: str, protection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.receiver.addresses.trust.has_aes", lambda: True)
    with house.daemon(encryption=setting) as port, house.loader(port, encryption=setting) as loader:
        house.check_epoch(loader)
        house.check_epoch(loader)
        assert loader.stats().protection == protection


def test_a_processor_without_instructions_for_aes_is_sent_the_other_cipher(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.receiver.addresses.trust.has_aes", lambda: False)
    with house.daemon() as port, house.loader(port) as loader:
        house.check_epoch(loader)
        assert loader.stats().protection == "chacha20-poly1305"


def test_a_key_that_nobody_allowed_gets_nothing_and_is_told_what_to_do(house: House) -> None:
    with house.daemon() as port:
        with pytest.raises(RefusedError, match="on its host: emlio allow NAME emlio1") as refused:
            house.loader(port, keys=str(house.other.path))
        assert refused.value.code == "not-admitted"
        assert str(house.other.pair().public) in str(refused.value)


def test_a_key_that_is_refused_again_and_again_is_logged_once(house: House, caplog: pytest.LogCaptureFixture) -> None:
    with house.daemon() as port:
        for _ in range(4):
            with pytest.raises(RefusedError, match="does not allow this host's key"):
                house.loader(port, keys=str(house.other.path))
            time.sleep(0.4)  # beyond the second after which another line may be logged
    assert sum("its key is not among the allowed clients" in line for line in caplog.messages) == 1


def test_a_daemon_starts_before_any_client_is_allowed(house: House, tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path / "new")
    keys.make("store")
    options = {"keys": str(house.gpu.path), "daemon_key": str(keys.pair().public)}
    with house.daemon(keys=keys.path) as port:
        with pytest.raises(RefusedError, match="does not allow this host's key"):
            house.loader(port, **options)
        keys.allow("gpu", house.gpu.pair().public)
        assert settles(lambda: _is_admitted(house, port, options), 10.0)


def _is_admitted(house: House, port: int, options: dict[str, str]) -> bool:
    try:
        with house.loader(port, **options):
            return True
    except RefusedError:
        return False


def test_without_a_key_one_gets_nothing(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMLIO_HOME", str(tmp_path / "none"))
    with house.daemon() as port:
        with pytest.raises(RemoteProtocolError, match=f"emlio trust 127.0.0.1:{port} KEY.*emlio keygen"):
            house.loader(port, keys=None, daemon_key=None)
        with pytest.raises(ConfigError, match="emlio keygen"):
            house.loader(port, keys=None)


def test_a_folder_of_keys_that_is_named_must_have_one(house: House, tmp_path: Path) -> None:
    with house.daemon(keys=None) as port, pytest.raises(ConfigError, match=r"keys.*which does not exist.*emlio keygen"):
        house.loader(port, keys=str(tmp_path / "none"), daemon_key=None)


def test_a_daemon_with_another_key_is_not_believed(house: House) -> None:
    expected = pytest.raises(RemoteProtocolError, match="the key emlio1")
    with house.daemon(keys=house.other.path) as port, expected:
        house.loader(port)


def test_a_daemon_without_keys_is_not_believed_where_one_is_expected(house: House) -> None:
    # Whichever end sees first that they do not go together hangs up, so the rank may not learn why.
    reasons = "runs without keys|closed the connection instead.*run without keys"
    with house.daemon(keys=None) as port, pytest.raises(RemoteProtocolError, match=reasons):
        house.loader(port)


@pytest.mark.parametrize("daemon_keyed", [False, True])
@pytest.mark.parametrize("rank_keyed", [False, True])
def test_an_address_with_the_data_port_is_told_that_the_control_port_is_needed(
    house: House, daemon_keyed: bool, rank_keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_HOME", str(house.folder / "none"))
    port = free_ports(2, "127.0.0.1")[0]
    keys: dict[str, Any] = {} if daemon_keyed else {"keys": None}
    own: dict[str, Any] = {} if rank_keyed else {"daemon_key": None, "keys": None}
    expected = f"control port.*, {port} without --data-port"  # said in one of two forms: of a data port, or of one without keys
    with (
        house.daemon(bind=Endpoint(host="127.0.0.1", port=port), **keys),
        pytest.raises(RemoteProtocolError, match=expected),
    ):
        house.loader(port + 1, **own)


def test_a_daemon_that_is_to_encrypt_without_keys_is_told_that_it_has_none(house: House) -> None:
    expected = r"this daemon has none\. Make them with emlio keygen and start the daemon with --keys DIR"
    with pytest.raises(ConfigError, match=expected), house.daemon(keys=None, encryption="aead"):
        pytest.fail("it must not serve")


def test_a_dataset_that_is_not_for_this_key_is_as_if_it_were_not_there(house: House) -> None:
    with house.daemon() as port:
        for name in ("closed", "there-is-none"):
            with pytest.raises(RefusedError, match=f"there is no dataset '{name}' at this daemon, available: open$"):
                house.loader(port, name)


def test_a_key_taken_away_ends_the_job_that_used_it_and_no_other(house: House) -> None:
    second = house.keys("second")
    house.store.allow("second", second.pair().public)
    with (
        house.daemon() as port,
        house.loader(port) as stays,
        house.loader(port, keys=str(second.path), rank=1, world_size=2) as goes,
    ):
        kept = iter(stays)
        next(kept)
        next(iter(goes))
        house.store.revoke("second")
        with pytest.raises(RefusedError, match=r"no longer allowed to read open|does not allow this host's key"):
            read_for_ever(goes)
        assert sum(1 for _ in kept) == RECORDS // 20 - 1


def read_for_ever(loader: EmlioLoader) -> None:
    while True:
        for _ in loader:
            pass


def test_nobody_else_gets_into_a_lane(house: House) -> None:
    """Not beside its rank, and not after it; and nobody gets a byte."""
    with house.daemon(lanes=2) as port, house.loader(port) as loader, zmq.Context() as context, ExitStack() as stack:
        batches = iter(loader)
        next(batches)
        (source,) = loader._shell.engine._machine.pool.sources
        secret, data_port = source.conversation.secret, int(source.stream.lanes.endpoint.rpartition(":")[2])
        bare = stack.enter_context(context.socket(zmq.DEALER))
        bare.setsockopt(zmq.LINGER, 0)
        bare.connect(f"tcp://127.0.0.1:{data_port}")
        thieves = [bare]
        for number in range(4):  # the first two are those of the rank
            tokens = (b"x" * 64, lane_token(secret, 0), lane_token(new_secret(), number))
            lanes = (lane_in(context, data_port, secret, number, token=token) for token in tokens)
            thieves += [stack.enter_context(lane) for lane in lanes]
        assert sum(len(batch["record"]) for batch in batches) == RECORDS - 20
        assert [thief.poll(100) for thief in thieves] == [0] * len(thieves)


def test_settings_that_do_not_go_together_are_refused_with_both_named(house: House) -> None:
    with (
        house.daemon(encryption="aead") as port,
        pytest.raises(RefusedError, match="Give both sides the same encryption"),
    ):
        house.loader(port, encryption="off")


def test_a_bad_key_file_does_not_open_the_door(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    path = house.store.clients_path / "nonsense.key"
    with house.daemon() as port:
        path.write_text("let everybody in\n")
        try:
            with pytest.raises(EmlioError):
                house.loader(port, keys=str(house.other.path), timeout="3s")
            with house.loader(port) as loader:
                house.check_epoch(loader)
        finally:
            path.unlink()
