"""How much each channel's error matters: the Fisher information of the next tokens with respect to the cached KV.

To second order, an error e in the cache moves the next tokens' distributions by KL = e' F e / 2, with F the Fisher
information: the expected square of the gradient of the log-likelihood, over tokens drawn from the model. Only its
diagonal is kept. It knows of the attention weights, the later layers and the head at once, so K and V of all layers
compare on one scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lynx_ascend.eval.model import EvalModel, Kv


def fisher(model: EvalModel, kv: Kv, ids: Tensor, *, draws: int, generator: torch.Generator) -> Kv:
    """The diagonal, in the shape of ``kv``, summed over the distributions after each of the tokens ``ids``.

    One draw of labels for all positions gives an unbiased estimate: gradients of different positions' scores do not
    correlate. ``draws`` of them are averaged.
    """
    keys = [plane.clone().requires_grad_() for plane in kv.keys]
    values = [plane.clone().requires_grad_() for plane in kv.values]
    planes = keys + values
    logits = model.resume(Kv(keys, values), ids)
    chances = logits.detach().softmax(-1)
    found = [torch.zeros_like(plane) for plane in planes]
    for draw in range(draws):
        labels = torch.multinomial(chances, 1, generator=generator).squeeze(1)
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        gradients = torch.autograd.grad(loss, planes, retain_graph=draw < draws - 1)
        for total, gradient in zip(found, gradients, strict=True):
            total.addcmul_(gradient, gradient, value=1 / draws)
    return Kv(found[: kv.layers], found[kv.layers :])
