"""Bytes and ages as people write them."""

from __future__ import annotations

#: Seconds below which a number would promise more than is known.
_FEW = 5.0


def size(count: int) -> str:
    """`count` bytes, such as `9.2 MB`; one kB is 1000 bytes, as disks count."""
    unit, number = "bytes", float(count)
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        unit, number = larger, number / 1000
    if unit == "bytes":
        return f"{count} byte" if count == 1 else f"{count} bytes"
    return f"{number:.1f} {unit}" if number < 100 else f"{number:.0f} {unit}"


def age(seconds: float) -> str:
    """How long ago, such as `2 h ago`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or (unit == "d" and seconds >= length):
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"


def span(seconds: float) -> str:
    """A length of time, roughly: `40 s`, `2.5 min`, `9 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 300:  # a whole minute would be a third of it
        return f"{round(seconds / 30) / 2:g} min"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def remaining(seconds: float) -> str:
    """The time until something ends, roughly: `about 40 s left`."""
    return "a few seconds left" if seconds < _FEW else f"about {span(seconds)} left"
