"""SIGKILL at random moments of Delta nights and Delta streams: no row lost, none twice, one commit per run.

benchmarks/delta_kills.py does the same more often.
"""

from tests.services.delta_kills import kill_nights, kill_streams

PLATFORM = "Delta 4.4.0", "jobs update and stream, killed with SIGKILL at random moments"
KILLS = 3


def test_nights(tmp_path):
    found = kill_nights(tmp_path, KILLS)
    assert found.rounds
    assert found.rows
    assert (found.lost, found.twice) == (0, 0)
    assert found.commits == found.expected_commits == len(found.run_ids)


def test_streams(tmp_path):
    found = kill_streams(tmp_path, KILLS)
    assert found.rounds
    assert found.rows
    assert (found.lost, found.twice) == (0, 0)
    assert found.commits == found.expected_commits
