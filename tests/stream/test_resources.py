"""Staging budgets, leases, the breaker and the token bucket, with a fake clock."""

import pytest

from lynx_ascend.stream.breaker import CircuitBreaker
from lynx_ascend.stream.leases import LeaseTable
from lynx_ascend.stream.rate import TokenBucket
from lynx_ascend.stream.staging import FifoBudget, StagingBudget


def test_fifo_budget_grants_in_order_and_starves_nobody():
    budget = FifoBudget(100)
    assert budget.request("a", 80) == ["a"]
    assert budget.request("big", 90) == []
    assert budget.request("small", 10) == [], "it would fit, but it is not its turn"
    assert budget.shrink("a", 50) == []
    assert budget.drop("a") == ["big", "small"]
    assert budget.used == 100
    budget.drop("big")
    budget.drop("big")
    budget.shrink("small", 1000)
    assert budget.used == 0


def test_fifo_budget_forgets_a_waiter():
    budget = FifoBudget(10)
    budget.request("a", 10)
    budget.request("b", 10)
    budget.request("c", 1)
    assert budget.drop("b") == []
    assert budget.drop("a") == ["c"]


def test_staging_budget_counts():
    budget = StagingBudget(10)
    budget.take(8)
    assert not budget.fits(3)
    budget.give(8)
    assert (budget.used, budget.peak) == (0, 8)


def test_leases():
    leases = LeaseTable(30.0)
    leases.open("a", 0.0)
    leases.open("b", 0.0)
    leases.renew("b", 20.0)
    leases.renew("unknown", 20.0)
    assert leases.expired(29.9) == []
    assert leases.expired(30.0) == ["a"]
    leases.close("a")
    assert leases.expired(49.9) == []
    assert leases.expired(50.0) == ["b"]
    assert len(leases) == 1


def test_breaker_opens_probes_and_closes():
    breaker = CircuitBreaker(threshold=2, open_s=5.0)
    breaker.record_failure(0.0)
    assert breaker.allows(0.1)
    breaker.record_failure(1.0)
    assert not breaker.allows(5.9)
    assert breaker.allows(6.0), "one probe"
    assert not breaker.allows(6.0)
    breaker.record_failure(6.5)
    assert not breaker.allows(11.0)
    assert breaker.allows(11.5)
    breaker.record_success()
    assert breaker.allows(11.6)


def test_bucket_keeps_the_rate():
    bucket = TokenBucket(80.0, now=0.0)  # 10 MB/s
    now = sent = 0.0
    while now < 1.0:
        wait = bucket.wait_s(now)
        now += wait + 0.0013  # a late wake-up costs nothing
        bucket.wait_s(now)
        size = bucket.slice_bytes(1 << 20)
        bucket.spend(size)
        sent += size
    assert sent == pytest.approx(10e6, rel=0.05)


def test_bucket_without_a_rate():
    bucket = TokenBucket(None, 0.0)
    bucket.spend(1 << 40)
    assert bucket.wait_s(0.0) == 0.0
    assert bucket.slice_bytes(77) == 77
