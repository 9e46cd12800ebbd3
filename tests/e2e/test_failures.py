"""What goes wrong on the way: damage, silence, lost links, preemption, stale and foreign handles, a dead peer."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from lynx_ascend.launch.cluster import Cluster

from .client import Pair, Tokens

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    "faults",
    [
        {"corrupt": "residual", "corrupt_times": 2},
        {"corrupt": "anchor", "corrupt_times": 2},
        {"drop_link": "residual"},
        {"drop_link": "anchor"},
        {"stall": "residual"},
        {"stall": "anchor"},
    ],
    ids=lambda faults: "-".join(map(str, faults.values())),
)
def test_a_failed_transfer_is_recomputed(pair: Pair, tokens: Tokens, faults: dict[str, Any]) -> None:
    prompt = tokens.prompt(500)
    plain = asyncio.run(pair.plain(prompt))
    before = pair.stats(pair.decode_url)["failed_loads"]
    answer = pair.ask(prompt, faults=faults, max_draft=8)
    assert answer.ids == plain.ids
    assert pair.stats(pair.decode_url)["failed_loads"] == before + 1
    pair.wait_until_idle()


@pytest.mark.parametrize("which", ["anchor", "residual"])
def test_one_damaged_payload_is_sent_again(pair: Pair, tokens: Tokens, which: str) -> None:
    prompt = tokens.prompt(500)
    full = pair.ask(prompt, "lynx-int8")
    before = pair.stats(pair.decode_url)["failed_loads"]
    answer = pair.ask(prompt, faults={"corrupt": which, "corrupt_times": 1})
    assert answer.ids == full.ids
    assert pair.stats(pair.decode_url)["failed_loads"] == before


def test_preemption_while_drafting(pair: Pair, tokens: Tokens) -> None:
    """Three long prompts fill D's blocks; as they grow, drafting ones are preempted and recomputed.

    1,340 tokens are 42 of D's 127 blocks, and 20 drafts need a 43rd. P has computed the prompts before, so that all
    three are drafting at once however slow the machine is.
    """
    prompts = [tokens.prompt(1340, offset=1400 * i) for i in range(3)]
    salts = [f"preempted-{i}" for i in range(3)]
    before = pair.metric(pair.decode_url, "vllm:num_preemptions_total")
    plain = [asyncio.run(pair.plain(prompt)) for prompt in prompts]

    async def together() -> list[Any]:
        for prompt, salt in zip(prompts, salts, strict=True):
            await pair.prefill(prompt, "lynx", salt=salt)
        return await asyncio.gather(
            *(
                pair.generate(prompt, salt=salt, max_draft=20, faults={"residual_delay_s": 7.0})
                for prompt, salt in zip(prompts, salts, strict=True)
            )
        )

    answers = asyncio.run(together())
    assert pair.metric(pair.decode_url, "vllm:num_preemptions_total") > before
    full = [pair.ask(prompt, "lynx-int8") for prompt in prompts]
    for answer, exact, coded in zip(answers, plain, full, strict=True):
        assert answer.ids in (exact.ids, coded.ids)
    assert any(answer.drafted == 0 for answer in answers), "no drafting request was preempted"
    pair.wait_until_idle()


def test_handles_that_cannot_be_right(pair: Pair, tokens: Tokens) -> None:
    """Stale, unknown, foreign, malformed and reused handles: the prompt is computed on D, nothing else is used."""
    prompt, other = tokens.prompt(200), tokens.prompt(200, offset=999)
    plain = asyncio.run(pair.plain(prompt))
    handle = asyncio.run(pair.prefill(prompt, "lynx", salt="h1"))
    foreign = asyncio.run(pair.prefill(other, "lynx", salt="h2"))
    wrong: list[dict[str, Any]] = [
        handle | {"generation": (handle["generation"] + 1) % 2**32},
        handle | {"transfer_id": "0" * 32},
        foreign,
        handle | {"transfer_id": "nonsense"},
        handle | {"max_draft": 100_000},
        handle | {"codec": "no-such-codec"},
        handle | {"remote_port": 1},
        handle | {"first_token": 10_000_000},
    ]
    for bad in wrong:
        # The first token of a wrong generation, id or port is still P's own for this prompt.
        assert asyncio.run(pair.decode(prompt, bad, salt="h3")).ids == plain.ids, bad
    good = asyncio.run(pair.decode(prompt, handle, salt="h4"))
    reused = asyncio.run(pair.decode(prompt, handle, salt="h5"))
    assert good.ids[:4] == plain.ids[:4]
    assert reused.ids == plain.ids
    pair.wait_until_idle(timeout_s=40)  # the foreign prompt's transfer goes with its lease


def test_prefill_killed_between_anchor_and_residual(cluster: Cluster, pair: Pair, tokens: Tokens) -> None:
    """D finishes the answer alone; a restarted P serves again, and handles of its former life are refused."""
    prompt = tokens.prompt(500)
    plain = asyncio.run(pair.plain(prompt))
    full = pair.ask(prompt, "lynx-int8")

    async def scenario() -> tuple[Any, dict[str, Any]]:
        left_over = await pair.prefill(prompt, "lynx", salt="left-over")
        handle = await pair.prefill(prompt, "lynx", salt="killed", faults={"stall": "residual"})
        answer = asyncio.create_task(pair.decode(prompt, handle, salt="killed", max_tokens=24))
        await asyncio.sleep(3.0)
        assert not answer.done()
        os.killpg(os.getpgid(cluster.prefill.pid), signal.SIGKILL)
        return await answer, left_over

    answer, left_over = asyncio.run(scenario())
    assert answer.ids == plain.ids
    cluster.restart("prefill")
    stale = asyncio.run(pair.decode(prompt, left_over, salt="stale"))
    assert stale.ids == plain.ids
    assert pair.ask(prompt).ids == full.ids
    pair.wait_until_idle()
