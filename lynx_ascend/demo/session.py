"""A demo from the model to the last answer: engines up, one warm-up, interleaved repetitions, engines down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lynx_ascend.demo import machine
from lynx_ascend.demo.client import Client
from lynx_ascend.demo.measure import Run
from lynx_ascend.demo.options import Options, cluster_config
from lynx_ascend.demo.prompts import Prompt, Tokenizer, build_prompt, load_tokenizer
from lynx_ascend.demo.questions import QUESTIONS
from lynx_ascend.demo.screen import Screen
from lynx_ascend.demo.summary import LYNX
from lynx_ascend.launch import Cluster
from lynx_ascend.models import resolve_model
from lynx_ascend.texts import essays

NEEDED_GB = 6.0
WARM_UP_TOKENS = 4


@dataclass(slots=True)
class Session:
    """What a demo measured. `prompts[r]` is the prompt of repetition r."""

    options: Options
    tokenizer: Tokenizer
    prompts: list[Prompt]
    runs: list[Run] = field(default_factory=list)

    def answers(self) -> list[tuple[str, str]]:
        """(question, lynx's answer), each question once."""
        found: dict[str, str] = {}
        for run in self.runs:
            if run.codec == LYNX:
                found.setdefault(self.prompts[run.repetition].question, self.tokenizer.answer(run.token_ids))
        return list(found.items())


def run_session(
    options: Options, screen: Screen, log_dir: Path, on_cluster: Callable[[Cluster], None]
) -> Session:
    """Runs everything. `on_cluster` gets the cluster before it starts, to kill it. `LynxError` says what to do."""
    free = machine.available_memory_gb()
    if free is not None and free < NEEDED_GB:
        screen.say(f"[yellow]{free:.1f} GB of memory are free; two engines need about {NEEDED_GB:.0f}[/]")
    screen.say(f"model {options.model}")
    folder = resolve_model(options.model, quiet=not screen.console.is_terminal)
    with screen.working("essays and prompts"):
        tokenizer = load_tokenizer(folder)
        texts = essays()
        prompts = [
            build_prompt(QUESTIONS[index % len(QUESTIONS)], texts, options.prompt_tokens, tokenizer)
            for index in range(options.repeat)
        ]
    session = Session(options, tokenizer, prompts)
    cluster = Cluster(
        cluster_config(options, log_dir), quiet=True, on_line=screen.line, on_state=screen.state
    )
    on_cluster(cluster)
    try:
        with screen.starting():
            cluster.start()
            cluster.wait_ready()
        _measure(session, cluster, screen)
    finally:
        cluster.stop()
    return session


def _measure(session: Session, cluster: Cluster, screen: Screen) -> None:
    options = session.options
    with (
        screen.measuring(1 + options.repeat * len(options.codecs)) as bar,
        Client(cluster.url, cluster.url_of("prefill"), options.model, chat=session.tokenizer.chat) as client,
    ):
        bar.asking("warm-up, not counted")
        client.ask(session.prompts[0], LYNX, 0, WARM_UP_TOKENS)
        bar.done()
        for repetition in range(options.repeat):
            began = time.monotonic()
            for codec in options.order(repetition):
                bar.asking(f"repetition {repetition + 1}: {codec}")
                run = client.ask(session.prompts[repetition], codec, repetition, options.max_tokens)
                session.runs.append(run)
                bar.answered(run)
                cluster.check()
            now = time.monotonic()
            left = options.budget_s - (now - screen.began)
            if repetition + 1 < options.repeat and now - began > left:
                screen.say(
                    f"[yellow]{repetition + 1} of {options.repeat} repetitions: "
                    f"the next would go beyond --budget-s {options.budget_s:g}[/]"
                )
                return
