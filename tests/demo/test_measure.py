from __future__ import annotations

import msgspec
import pytest

from lynx_ascend.demo.breakdown import breakdown, median_breakdown
from lynx_ascend.demo.client import read_answer
from lynx_ascend.demo.errors import DemoError
from lynx_ascend.demo.measure import parse_token_times

from .runs import BEGAN, make_run


def test_the_first_token_is_ttft_and_not_counted():
    run = make_run("int8")
    assert run.ttft == pytest.approx(5.0)
    assert run.produced(1) == run.verified(1) == pytest.approx(9.1)
    assert run.verified(64) == pytest.approx(9.1 + 6.3)
    assert run.verified(65) is None


def test_without_a_token_of_p_the_first_one_counts():
    run = make_run("int8", prefilled=False)
    assert run.produced(1) == run.ttft
    assert run.produced(65) == pytest.approx(9.1 + 6.3)


def test_drafts_are_produced_early_and_verified_together():
    run = make_run("lynx", drafted=20, accepted=18)
    assert run.produced(1) == pytest.approx(7.1)
    assert run.produced(18) == pytest.approx(7.1 + 1.7)
    assert run.verified(1) == run.verified(18) == pytest.approx(9.5)
    # The correction is a token of the verification, not a draft.
    assert run.produced(19) == run.verified(19) == pytest.approx(9.5)


def test_spans_add_up_to_the_last_token():
    run = make_run("lynx", drafted=20, accepted=18)
    spans = {span.key: span.seconds for span in breakdown(run)}
    assert sum(spans.values()) == pytest.approx(run.verified(64))
    assert spans["prefill"] == pytest.approx(5.0)
    assert spans["anchor"] == pytest.approx(1.8)
    assert spans["residual"] == pytest.approx(2.0)
    assert spans["verify"] == pytest.approx(0.4)
    assert all(seconds >= 0 for seconds in spans.values())


def test_spans_are_never_negative():
    run = make_run("lynx", drafted=20, accepted=18)
    late = msgspec.structs.replace(run.times.transfer, t_anchor_applied=BEGAN + 9.2)
    times = msgspec.structs.replace(run.times, transfer=late)
    spans = breakdown(type(run)(**{name: getattr(run, name) for name in run.__slots__} | {"times": times}))
    assert {span.key: span.seconds for span in spans}["residual"] == 0
    assert sum(span.seconds for span in spans) == pytest.approx(run.verified(64))


def test_nothing_is_broken_down_without_drafts_or_tokens():
    assert breakdown(make_run("int8")) == []
    assert breakdown(make_run("lynx", drafted=4, accepted=4, tokens=10)) == []
    assert median_breakdown([]) == []


def test_the_median_run_is_broken_down():
    runs = [
        make_run("lynx", i, drafted=20, accepted=18, shift=shift) for i, shift in enumerate((3.0, 0.0, 1.0))
    ]
    assert sum(span.seconds for span in median_breakdown(runs)) == pytest.approx(runs[2].verified(64))


def answer(**changes):
    run = make_run("lynx", drafted=2, accepted=2, tokens=5)
    choice = {"message": {"content": "Yes."}, "token_ids": list(run.token_ids)}
    reply = {"choices": [choice], "usage": {"prompt_tokens": 7}}
    return reply | {"kv_transfer_params": {"token_times": msgspec.to_builtins(run.times)}} | changes


def test_an_answer_is_read():
    run = read_answer(answer(), "lynx", 2, BEGAN, BEGAN + 9)
    assert (run.codec, run.repetition, run.text, run.prompt_tokens) == ("lynx", 2, "Yes.", 7)
    assert run.times.transfer.bytes == 37_000_000
    completion = {"choices": [{"text": "No.", "token_ids": [1, 2, 3, 4, 5]}]}
    assert read_answer(answer(**completion), "lynx", 0, BEGAN, BEGAN + 9).text == "No."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_transfer_params": None}, "computed the prompt itself"),
        ({"kv_transfer_params": {"token_times": {"produced": []}}}, "did not finish"),
        ({"choices": []}, "another version"),
        ({"choices": [{"text": "", "token_ids": [1]}]}, "1 tokens came with 5 times"),
    ],
)
def test_an_answer_without_a_transfer_is_no_measurement(changes, message):
    with pytest.raises(DemoError, match=message):
        read_answer(answer(**changes), "lynx", 0, BEGAN, BEGAN + 9)


def test_times_without_a_finished_transfer_are_refused():
    times = msgspec.to_builtins(make_run().times) | {"transfer": {"anchor_bytes": 1.0}}
    with pytest.raises(DemoError, match="residual_bytes"):
        parse_token_times({"token_times": times})
