"""Numbers of streams: never two at once, and never many."""

from emlio.receiver.machine.membership import StreamNumbers


def test_one_that_comes_back_gets_its_number_again() -> None:
    numbers = StreamNumbers(["a", "b"])
    assert numbers.take("c") == 2
    numbers.give_back(0)
    assert numbers.take("d") == 3
    assert numbers.take("a") == 0
    assert numbers.names == ["a", "b", "c", "d"]


def test_thousands_that_come_and_go_need_no_more_numbers_than_a_few() -> None:
    numbers, used = StreamNumbers(["a", "b", "directory /data"]), {0: "a", 1: "b", 2: "directory /data"}
    for turn in range(5000):
        number = numbers.take(f"x{turn}")
        assert number not in used
        used[number] = f"x{turn}"
        if turn >= 7:
            gone = next(number for number, name in used.items() if name == f"x{turn - 7}")
            del used[gone]
            numbers.give_back(gone)
        assert all(numbers.names[number] == name for number, name in used.items())
    assert len(numbers.names) <= 64
    assert len({numbers.take(f"y{turn}") for turn in range(100)} | set(used)) == 100 + len(
        used
    )  # as many as are needed
