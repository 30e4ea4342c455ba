import pytest

from exo.runner.output.stops import StopResult, StopSequences


def test_text_passes_through_without_stops() -> None:
    stops = StopSequences(())
    assert stops.push("anything") == StopResult("anything")
    assert stops.flush() == ""


def test_a_stop_inside_a_piece_cuts_it() -> None:
    assert StopSequences(["END"]).push("text END more") == StopResult("text ", "END")


def test_a_stop_cut_over_pieces_does_not_leak() -> None:
    stops = StopSequences(["END"])
    assert stops.push("text E") == StopResult("text ")
    assert stops.push("N") == StopResult("")
    assert stops.push("D") == StopResult("", "END")


def test_a_held_tail_comes_out_when_it_was_no_stop() -> None:
    stops = StopSequences(["END"])
    assert stops.push("EN").text == ""
    assert stops.push("Tropy").text == "ENTropy"


def test_a_held_tail_comes_out_at_the_end() -> None:
    stops = StopSequences(["END"])
    assert stops.push("the EN").text == "the "
    assert stops.flush() == "EN"
    assert stops.flush() == ""


def test_a_repeated_beginning_is_held_no_longer_than_needed() -> None:
    stops = StopSequences(["aab"])
    assert stops.push("aaa").text == "a"
    assert stops.push("b") == StopResult("", "aab")


def test_the_earliest_of_several_stops_wins() -> None:
    assert StopSequences(["two", "one"]).push("one two") == StopResult("", "one")


@pytest.mark.parametrize("pieces", [["abcd"], ["a", "b", "c", "d"]])
def test_the_stop_that_is_complete_first_wins_over_one_that_begins_first(pieces: list[str]) -> None:
    stops = StopSequences(["abcd", "bc"])
    results = [stops.push(piece) for piece in pieces]
    hit = next(position for position, result in enumerate(results) if result.stop_sequence)
    assert results[hit].stop_sequence == "bc"
    assert "".join(result.text for result in results[: hit + 1]) == "a"


def test_the_longer_of_two_stops_that_end_together_wins() -> None:
    assert StopSequences(["bc", "abc"]).push("abc") == StopResult("", "abc")


def test_empty_stops_are_ignored() -> None:
    assert StopSequences(["", "x"]).push("ab") == StopResult("ab")
