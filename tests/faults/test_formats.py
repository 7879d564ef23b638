"""Damaged files of every kind: an error of the package or the same data, nothing else."""

from tests.faults import format_cases


def test_damaged_files_give_clear_errors(tmp_path):
    tallies, bad = format_cases.try_cases(tmp_path, 1_000)
    assert bad == []
    for tally in tallies:
        assert tally.is_good
        assert tally.cases == 1_000
        assert tally.clear_errors > 500


def test_every_bit_of_a_small_coreset_file_counts(tmp_path):
    kind = format_cases.make_kinds(tmp_path)[0]
    bad = []
    for place in range(len(kind.content)):
        outcome, reason = format_cases.try_case(kind, format_cases.flipped(kind.content, place, place % 8))
        bad += [(place, reason)] if reason else []
        assert outcome in ("clear error", "done right")
    assert bad == []


def test_a_case_can_end_badly(tmp_path):
    kind = format_cases.make_kinds(tmp_path)[0]
    kind.expected = "something else"
    assert format_cases.try_case(kind, kind.content) == ("silent wrong", "loads as other data")
    kind.read = lambda content: 1 // 0
    assert format_cases.try_case(kind, kind.content)[0] == "unclear error"
