"""Who may connect to the control port."""

from emlio.daemon.access.gate import CONTROL_PORT_NAME, ConnectionRequest, Gate

ALICE, MALLORY = b"A" * 32, b"M" * 32


def request(*, key: bytes = b"") -> ConnectionRequest:
    return ConnectionRequest(port=CONTROL_PORT_NAME, address="10.0.0.9", key=key)


def test_without_a_list_of_clients_everybody_may_say_hello() -> None:
    verdict = Gate(None).judge(request())
    assert (verdict.admitted, verdict.user) == (True, "")


def test_with_one_only_its_keys_may_and_are_known_by_them() -> None:
    gate = Gate({ALICE}.__contains__)
    verdict = gate.judge(request(key=ALICE))
    assert (verdict.admitted, verdict.user) == (True, ALICE.hex())
    for key in (MALLORY, b""):
        assert gate.judge(request(key=key)).reason == "its key is not among the allowed clients"


def test_the_list_is_asked_each_time() -> None:
    known = {ALICE}
    gate = Gate(lambda key: key in known)
    assert gate.judge(request(key=ALICE)).admitted
    known.clear()
    assert not gate.judge(request(key=ALICE)).admitted
