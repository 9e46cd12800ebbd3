"""Fabricated runs: a request at second 1000 with a first token at 1005 and drafts or none."""

from __future__ import annotations

from lynx_ascend.demo.measure import Run, TokenTimes, Transfer

BEGAN = 1000.0


def make_run(
    codec="int8", repetition=0, *, tokens=65, drafted=0, accepted=0, shift=0.0, ids=None, prefilled=True
):
    """The first token 5 s after the request, anchor applied at 7, residual at 9; 0.1 s a token."""
    at = BEGAN + shift
    if drafted:
        produced = [7.1 + 0.1 * i for i in range(accepted)]
        verified = [9.5] * accepted
        rest = [9.5 + 0.1 * i for i in range(tokens - 1 - accepted)]
        produced, verified = produced + rest, verified + rest
    else:
        produced = verified = [9.1 + 0.1 * i for i in range(tokens - 1)]
    progressive = codec.startswith("lynx")
    transfer = Transfer(
        anchor_bytes=20e6 if progressive else 35e6,
        residual_bytes=17e6 if progressive else 0.0,
        t_subscribed=at + 5.1,
        t_first_byte=at + 5.2,
        t_anchor_done=at + 6.9,
        t_anchor_applied=at + 7.0,
        t_residual_done=at + 9.0,
        t_full_applied=at + 9.05,
        decode_anchor_s=0.05,
    )
    times = TokenTimes(
        admitted=at + 5.0,
        produced=[at + 5.0, *(at + t for t in produced)],
        verified=[at + 5.0, *(at + t for t in verified)],
        first_token_from_prefill=prefilled,
        drafted=drafted,
        accepted=accepted,
        transfer=transfer,
        verify_started=at + 9.1 if drafted else None,
    )
    token_ids = tuple(ids or range(100, 100 + tokens))
    return Run(codec, repetition, BEGAN, at + 20.0, 2990, token_ids, f"text of {codec}", times, encode_s=0.2)


def make_runs(repetitions=3, **of_lynx):
    """All codecs in every repetition; `of_lynx` goes to lynx's runs."""
    runs = []
    for repetition in range(repetitions):
        shift = 0.5 * repetition
        for codec in ("bf16", "int8", "int4", "lynx-int8"):
            runs.append(make_run(codec, repetition, shift=shift))
        runs.append(make_run("lynx", repetition, shift=shift, **({"drafted": 20, "accepted": 18} | of_lynx)))
    return runs
