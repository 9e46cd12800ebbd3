from __future__ import annotations

import json

import pytest
from rich.console import Console

from lynx_ascend.demo import machine, report
from lynx_ascend.demo.summary import differences, rows, to_json

from .runs import make_run, make_runs

KEYS = {
    "ttft_s",
    "tt1t_produced_s",
    "tt32t_produced_s",
    "tt64t_produced_s",
    "tt1t_verified_s",
    "tt32t_verified_s",
    "tt64t_verified_s",
    "bytes",
    "drafted",
    "accepted",
}
ABOUT = {"model": "smollm2", "max_tokens": 65, **machine.describe()}


def test_json_holds_medians():
    result = json.loads(json.dumps(to_json(make_runs(), 50.0, ABOUT)))
    assert result["text_equal"] is True
    assert (result["link_mbps"], result["prompt_tokens"]) == (50.0, 2990)
    assert list(result["codecs"]) == ["bf16", "int8", "int4", "lynx-int8", "lynx"]
    for figures in result["codecs"].values():
        assert set(figures) >= KEYS
    lynx = result["codecs"]["lynx"]
    assert lynx["ttft_s"] == 5.5  # of 5.0, 5.5, 6.0
    assert lynx["tt1t_produced_s"] == 7.6
    assert lynx["tt1t_verified_s"] == 10.0
    assert (lynx["bytes"], lynx["drafted"], lynx["accepted"]) == (37_000_000, 20, 18)
    assert (lynx["encode_s"], lynx["decode_anchor_s"]) == (0.2, 0.05)
    assert lynx["codec_share_of_tt1t"] == 0.0329  # of 7.1, 7.6 and 8.1 s
    assert len(result["runs"]) == 15
    assert result["runs"][4]["breakdown_s"]["verify"] == 0.4


def test_the_share_of_accepted_drafts_is_of_all_runs():
    """Medians, each by itself, would make 35/36 of them: all but one."""
    drafts = [(42, 42), (36, 15), (35, 35)]
    runs = [make_run("lynx", i, drafted=made, accepted=kept) for i, (made, kept) in enumerate(drafts)]
    (row,) = rows(runs)
    assert (row.drafted, row.accepted) == (36, 35)
    assert (row.all_drafted, row.all_accepted) == (113, 92)


def test_figures_that_no_run_has_are_null():
    runs = [make_run(codec, tokens=40) for codec in ("lynx", "lynx-int8")]
    figures = to_json(runs, 50.0, {})["codecs"]["lynx"]
    assert figures["tt64t_verified_s"] is None
    assert figures["tt32t_verified_s"] is not None


@pytest.mark.parametrize(
    ("ids", "token"),
    [
        ([*range(100, 140), 7, *range(141, 165)], 40),
        (list(range(100, 160)), 60),  # shorter
    ],
)
def test_a_difference_is_found(ids, token):
    runs = [*make_runs(1), make_run("lynx-int8", 1), make_run("lynx", 1, ids=ids)]
    (difference,) = differences(runs)
    assert (difference.repetition, difference.token) == (1, token)
    assert to_json(runs, 50.0, {})["text_equal"] is False


def printed(action, *arguments):
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    action(console, *arguments)
    return console.export_text()


def test_the_report():
    runs = make_runs()
    text = printed(report.print_report, runs, to_json(runs, 50.0, ABOUT))
    lynx = next(line for line in text.splitlines() if "lynx " in line and "54/60" in line)
    for figure in ("5.50", "7.60", "10.00", "37.0"):
        assert figure in lynx
    assert "medians of 3" in text
    assert "0.40  verify" in text
    assert "0.20 s of encoding" in text
    assert "3.3 % of lynx's TT1T" in text
    assert "50 Mbit/s" in text
    assert "5.6 s" in text  # 35 MB at 50 Mbit/s
    assert "smollm2" in text


def test_the_report_without_int8_or_enough_tokens():
    runs = [make_run(codec, tokens=10) for codec in ("lynx", "lynx-int8")]
    text = printed(report.print_report, runs, to_json(runs, 50.0, ABOUT))
    assert "Speed-up" not in text
    assert "-" in text


def test_the_prefill_can_be_taken_out():
    after = to_json(make_runs(), 50.0, ABOUT)["after_first"]
    assert after["lynx"]["tt1t_produced_s"] == 2.1
    assert after["int8"]["tt1t_verified_s"] == 4.1


def test_questions_and_answers():
    text = printed(report.print_answers, [("What?", " That. "), ("Why?", "[because]")])
    assert "Q: What?\nA: That.\n" in text
    assert "A: [because]" in text


def test_the_verdict():
    assert "in 2 of 2 repetitions" in printed(report.print_verdict, make_runs(2))
    other = make_runs(1, ids=[1, *range(101, 165)])
    assert "differs from lynx-int8's from token 0" in printed(report.print_verdict, other)


def test_rows_keep_the_order_of_the_codecs():
    assert [row.codec for row in rows(make_runs())] == ["bf16", "int8", "int4", "lynx-int8", "lynx"]
