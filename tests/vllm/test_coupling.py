"""Which rows of a batch sample coupled, and with which seeds."""

from __future__ import annotations

from .sampling_lab import coupler_of


def test_only_lynx_requests_with_a_temperature_are_coupled():
    coupler = coupler_of([("plain", 1), ("greedy", 1), ("coupled", 1)], [5, 6, 7])
    assert [coupler.tracks(str(n)) for n in range(3)] == [False, False, True]
    rows = coupler.rows()
    assert (rows.rows.tolist(), rows.positions.tolist()) == ([2], [7])
    coupler.track("pooling", None)
    coupler.forget(["2", "never"])
    assert coupler.rows() is None


def test_a_request_that_is_not_in_the_batch_is_left_out():
    coupler = coupler_of([("coupled", 1), ("coupled", 2)], [5, 6])
    del coupler._runner.input_batch.req_id_to_index["0"]
    assert coupler.rows().rows.tolist() == [1]
    del coupler._runner.input_batch.req_id_to_index["1"]
    assert coupler.rows() is None


def test_without_a_seed_each_request_has_its_own():
    coupler = coupler_of([("coupled", None), ("coupled", None)], [5, 5], ["a", "b"])
    one, two = coupler.rows().seeds
    assert one != two
    assert coupler_of([("coupled", None)], [5], ["a"]).rows().seeds[0] == one
