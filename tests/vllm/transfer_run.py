"""P's and D's workers over one transport, and everything that D reported."""

from __future__ import annotations

import uuid

import torch

from lynx_ascend.vllm.metadata import Encode, Offer, Receive


class Run:
    """P's and D's workers, and everything that D reported."""

    def __init__(self, lab, p_caches, d_caches, p_settings=None, d_settings=None):
        self.lab = lab
        self.p, self.d = lab.table(p_caches, **(p_settings or {})), lab.table(d_caches, **(d_settings or {}))
        self.recorders = lab.record(self.d)
        self.encoder, self.receiver = (
            lab.encoder(self.p, **(p_settings or {})),
            lab.receiver(self.d, **(d_settings or {})),
        )
        self.finished, self.sent = [], []
        self.ready, self.failed, self.facts = {}, {}, {}

    def offer(self, tokens, codec, faults=None, *, encode=True):
        """P offers and encodes a prompt; returns (handle, P's blocks)."""
        blocks, req_id = self.lab.blocks(tokens), uuid.uuid4().hex
        handle = self.lab.handle(self.encoder.port, tokens, codec)
        self.encoder.offer(Offer(req_id, handle.transfer_id, tokens, codec, faults))
        if encode:
            self.encoder.encode(Encode(req_id, blocks))
        return handle, blocks, req_id

    def receive(self, handle, *, drafts=False, start=0, req_id="d", first_block=3):
        blocks = self.lab.blocks(handle.prompt_tokens, first_block)
        self.receiver.receive(Receive(req_id, handle, drafts, start, handle.prompt_tokens, blocks))
        return blocks

    def poll(self):
        self.finished += sorted(self.receiver.take_finished())
        self.sent += sorted(self.encoder.take_finished())
        if (report := self.receiver.take_report()) is not None:
            self.ready.update(report.ready)
            self.failed.update(report.failed)
            self.facts.update(report.facts)

    def until(self, condition):
        self.lab.until(lambda: (self.poll(), condition())[1])

    def writes(self):
        return [write for recorder in self.recorders for write in recorder.writes]

    def nothing_staged(self):
        self.lab.until(
            lambda: (
                not self.encoder.server.staged_bytes
                and not self.encoder.server.active_transfers
                and not self.receiver.client.staged_bytes
                and not self.receiver.client.active_transfers
            )
        )


def same(left, right):
    return all(
        torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(left, right, strict=True)
    )
