"""Uses the GPU, and reads from it; it says whether a user's own startup file ran."""

import sys

import torch

x = torch.ones(4, device="cuda") * 2
print("read", x.sum().item())  # <- plain
print("own", getattr(sys, "own_startup_file", False))
