"""Masks of a user's own; one asks the GPU how many keys there are."""

from typing import Any

import torch


def counting(length: Any, device: Any) -> Any:
    keys = int(torch.ones(length, device=device).sum().item())  # <- counting

    def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return query < keys

    return mask
