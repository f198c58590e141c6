"""One call of attention, in values that a job, a result file and a program can hold."""

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    """One call. The defaults are those of the simplest call; `lines.py` knows the words."""

    length: int = 128
    """Queries."""
    keys: int = 0
    """Keys; 0: as many as queries."""
    size: int = 64
    """Of a head."""
    heads: int = 1
    kv_heads: int = 1
    batch: int = 1
    training: bool = False
    dtype: str = "bfloat16"
    causal: bool = False
    mask: str = "none"
    values: str = "normal"
    """The numbers in queries, keys and values."""
    level: int = 0
    """What every score is shifted by."""
    layout: str = "heads first"
    """How queries, keys and values lie in memory."""
    gradient: str = "plain"
    """How the gradient of the output lies in memory."""
    how: str = "call"
    """How the backend is called."""
    seed: int = 0

    @property
    def columns(self) -> int:
        """The number of keys."""
        return self.keys or self.length

    @property
    def scores(self) -> int:
        """The number of scores."""
        return self.batch * self.heads * self.length * self.columns

    def plain(self) -> dict[str, Any]:
        """What differs from the simplest call."""
        return {
            name: value
            for name, value in self._asdict().items()
            if value != getattr(SIMPLEST, name)
        }


SIMPLEST = Case()


def described(case: Case) -> str:
    """A call in words, such as `length 192, 1 head of 128, bfloat16, training`."""
    heads = f"{case.heads} head{'s' if case.heads > 1 else ''}"
    if case.kv_heads != case.heads:
        heads += f" on {case.kv_heads} of keys"
    words = [
        f"length {case.length}" + (f" with {case.keys} keys" if case.keys else ""),
        f"{heads} of {case.size}",
        case.dtype,
        "training" if case.training else "inference",
    ]
    if case.batch > 1:
        words.insert(1, f"batch {case.batch}")
    words += ["causal"] if case.causal else []
    words += [f"mask: {case.mask}"] if case.mask != "none" else []
    words += [f"{case.values} values"] if case.values != "normal" else []
    words += [f"scores near {case.level:+d}"] if case.level else []
    words += [f"memory: {case.layout}"] if case.layout != "heads first" else []
    words += [f"gradient: {case.gradient}"] if case.gradient != "plain" else []
    words += [case.how] if case.how != "call" else []
    return ", ".join(words)
