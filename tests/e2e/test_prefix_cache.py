"""The prefix cache never gives out blocks that hold anchors only, nor blocks of a coarser codec."""

from __future__ import annotations

import asyncio

import pytest

from .client import Pair, Tokens

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_no_anchor_only_block_is_shared(pair: Pair, tokens: Tokens) -> None:
    """While A drafts, a plain request and a Lynx request with A's prompt find nothing; after A, the latter does."""
    prompt = tokens.prompt(500, offset=300)
    plain_alone = asyncio.run(pair.plain(prompt))
    full = pair.ask(prompt, "lynx-int8")
    salt = "shared-prompt"

    async def scenario() -> tuple[object, ...]:
        drafting = asyncio.create_task(pair.generate(prompt, salt=salt, faults={"residual_delay_s": 8.0}))
        await asyncio.sleep(3.0)
        second = await pair.prefill(prompt, "lynx", salt=salt)
        plain, lynx = await asyncio.gather(
            pair.plain(prompt, salt=salt), pair.decode(prompt, second, salt=salt)
        )
        assert not drafting.done()
        return await drafting, plain, lynx

    first, plain, lynx = asyncio.run(scenario())
    assert first.ids == full.ids  # type: ignore[attr-defined]
    assert first.drafted > 0  # type: ignore[attr-defined]
    assert plain.ids == plain_alone.ids  # type: ignore[attr-defined]
    assert plain.cached_tokens == 0  # type: ignore[attr-defined]
    assert lynx.ids == full.ids  # type: ignore[attr-defined]
    assert lynx.times["transfer"]["local_tokens"] == 0  # type: ignore[attr-defined]

    after = pair.ask(prompt, salt=salt)
    assert after.ids == full.ids
    assert after.times["transfer"]["local_tokens"] >= 480
    pair.wait_until_idle()


def test_codecs_are_hashed_apart(pair: Pair, tokens: Tokens) -> None:
    """A request never starts from blocks that went through another codec, or from loaded ones if it is plain."""
    prompt = tokens.prompt(500, offset=900)
    plain_alone = asyncio.run(pair.plain(prompt))
    full = pair.ask(prompt, "lynx-int8")
    salt = "codecs-apart"
    pair.ask(prompt, "int4", salt=salt)
    assert pair.ask(prompt, "lynx", salt=salt).ids == full.ids
    plain = asyncio.run(pair.plain(prompt, salt=salt))
    assert plain.ids == plain_alone.ids
    assert plain.cached_tokens == 0
    # lynx and lynx-int8 end with the same KV and share their blocks.
    again = pair.ask(prompt, "lynx-int8", salt=salt)
    assert again.ids == full.ids
    assert again.times["transfer"]["local_tokens"] >= 480


def test_a_partial_local_hit_is_completed_from_remote(pair: Pair, tokens: Tokens) -> None:
    prompt = tokens.prompt(900, offset=1500)
    full = pair.ask(prompt, "lynx-int8")
    salt = "partial-hit"
    pair.ask(prompt[:400], "lynx", salt=salt)
    lynx = pair.ask(prompt, "lynx", salt=salt, faults={"residual_delay_s": 1.0})
    assert 300 < lynx.times["transfer"]["local_tokens"] <= 400
    assert lynx.ids == full.ids
