"""Proves an installation: imports the modules in the environment, each in a process of its own.

On a machine with a GPU the backends run too, by `attn-doctor backends --live`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.install.demand import Demand
from attn_doctor.processes import run

#: Seconds that an import may take: the first one of torch on a slow disk takes a minute.
_SECONDS = 300.0


class Proof(Struct, frozen=True):
    """The import of one module."""

    module: str
    fault: str = ""
    """The last line of the failure; empty if it was imported."""


def modules(demand: Demand) -> tuple[str, ...]:
    """Return the modules whose import proves what is asked for; torch comes first."""
    found = (module for meaning in demand.meanings for module in meaning.modules)
    return tuple(dict.fromkeys(("torch", *found)))


def live_words(demand: Demand, facts: Facts, python: str) -> tuple[str, ...]:
    """Return the words of the command that runs the backends; empty without a GPU or a backend.

    Only the phase that is asked for counts: SageAttention has no backward pass.
    """
    names = [name for meaning in demand.meanings for name in meaning.backends]
    if not facts.gpus or not names:
        return ()
    phase = "training" if demand.training else "inference"
    return ("backends", "--live", *names, "--for", phase, "--python", python)


def prove(python: str, names: Sequence[str], environ: Mapping[str, str]) -> tuple[Proof, ...]:
    """Import each module with the interpreter at `python`. Raises nothing."""
    return tuple(_proved(python, name, environ) for name in names)


def _proved(python: str, name: str, environ: Mapping[str, str]) -> Proof:
    # Extensions of torch find its libraries only after torch.
    code = f"import torch, importlib; importlib.import_module({name!r})"
    ended = run((python, "-c", code), _SECONDS, env=environ, joined=True)
    if ended.ok:
        return Proof(name)
    lines = ended.out.strip().splitlines()
    return Proof(name, lines[-1].strip()[:300] if lines else ended.status)
