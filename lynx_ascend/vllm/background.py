"""One worker thread that works through a queue of jobs, with one torch thread of its own."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable

import torch
from vllm.logger import init_logger

logger = init_logger("vllm.lynx")


class BackgroundThread:
    """Runs jobs in order. The queue needs no bound of its own: jobs exist only for staged bytes or held blocks."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job. Jobs handle their own expected errors; an unexpected one is logged and the thread goes on."""
        self._jobs.put(job)

    def close(self, timeout_s: float = 5.0) -> None:
        """Finish the queued jobs and stop, waiting at most `timeout_s`."""
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        _use_one_core()
        with torch.inference_mode():
            while (job := self._jobs.get()) is not None:
                try:
                    job()
                except Exception:
                    logger.exception("lynx: a background job failed")


def _use_one_core() -> None:
    """Keep this thread's operators off the cores of the engine's thread.

    torch.set_num_threads would also change MKL's process-wide setting (and the CPU worker makes it a no-op); OpenMP's
    is the calling thread's own, once torch has initialised it.
    """
    torch.get_num_threads()
    set_threads = getattr(ctypes.CDLL(None), "omp_set_num_threads", None)
    if set_threads is not None:
        set_threads(1)
