"""Facts: of a machine and its interpreter, by all probes, or of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial

from msgspec.structs import replace

from attn_doctor._version import __version__
from attn_doctor.facts import Dispatcher, Facts, Package, to_json
from attn_doctor.host import Host
from attn_doctor.probes import distributions, forked, interpreter, nvidia
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.forked import Forks
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.running import Limit, Probe, Running, collect, start

#: Seconds that the probes may take together. On a loaded machine they may take `processes.SLOWED`
#: times as long, while they are busy and have not used this much processor time.
LIMIT = 4.0


def examine(host: Host, python: str = "", limit: float = LIMIT) -> Facts:
    """Return all facts of `host` and of the interpreter at `python`, by default the active one.

    Raises `ExaminationError` if that interpreter cannot be examined. Takes at most about
    `limit` seconds, or longer on a loaded machine; a probe that has not answered leaves gaps.
    """
    until = Limit.of(limit)
    host.patience = max(1.0, limit / LIMIT)
    others, forks = host.prepare, Forks(host)
    later = partial(_prepare, others)
    host.prepare = _prepare_probes if forks.possible else later
    try:
        return _facts(host, python, until, forks, later)
    finally:
        host.prepare = others
        forks.end()


def _prepare_probes() -> None:
    """Import the probes with what most of them import, and read the tables."""
    from attn_doctor.binaries import read
    from attn_doctor.probes import registry
    from attn_doctor.rulebook import library

    del read, registry
    library.tables()


def _prepare(others: Callable[[], None] | None) -> None:
    """Import what is needed once the interpreter has described itself, and read the tables."""
    from attn_doctor import derived
    from attn_doctor.probes.installed import broken

    del derived, broken
    _prepare_probes()
    if others is not None:
        others()


def _facts(
    host: Host, python: str, until: Limit, forks: Forks, prepare: Callable[[], None]
) -> Facts:
    gaps = Gaps()
    # The driver is the slowest to answer, and needs to know nothing of the interpreter.
    nowhere = Site(folders=(), distributions=Distributions(host, ()))
    forks.begin(Running(nvidia.PROBE, host, nowhere))
    chosen = interpreter.choose(host, python)
    site = distributions.scan(
        host,
        chosen.site_packages,
        chosen.prefix,
        gaps,
        chosen.plain,
        chosen.answer.version,
        chosen.answer.cache_tag,
        chosen.answer.stdlib,
        chosen.answer.user_site in chosen.site_packages,
    )
    site = replace(site, ctypes=chosen.answer.ctypes)
    _prepare_probes()
    from attn_doctor.probes import registry

    running = [Running(probe, host, site) for probe in registry.PROBES]
    forks.begin(*(one for one in running if one.probe.name in forked.APART))
    apart = {one.probe.name for one in forks.running}
    here = [one for one in running if one.probe.name not in apart]
    workers = [*forks.wait(), *start(here, until)]
    if forks.running:  # meanwhile this process has nothing else to do
        prepare()
    fields: dict[str, object] = {
        "python": interpreter.describe(host, chosen, site, gaps),
        "interpreters": chosen.candidates,
    }
    collect([*forks.running, *here], workers, host, fields, gaps, until)
    _read_dispatcher(host, site, fields, gaps, until)
    _read_code(host, fields)
    facts = Facts(
        attn_doctor=__version__,
        taken=datetime.fromtimestamp(host.now(), timezone.utc).isoformat(timespec="seconds"),
        gaps=gaps.reasons,
        **fields,  # type: ignore[arg-type]
    )
    from attn_doctor.probes.installed.broken import with_broken_imports

    return with_broken_imports(host, site, derive(_printable(facts)))


def _read_dispatcher(
    host: Host, site: Site, fields: dict[str, object], gaps: Gaps, until: Limit
) -> None:
    """Read Diffusers' dispatcher, after the packages: its folder and version are needed."""
    diffusers = fields.get("diffusers")
    if not isinstance(diffusers, Package) or not diffusers.path:
        absent = isinstance(diffusers, Package) and diffusers.installed is False
        fields["dispatcher"] = Dispatcher(checksum="" if absent else None)
        return
    from attn_doctor.probes.installed import dispatcher
    from attn_doctor.rulebook import library

    rows = library.tables()["dispatcher"]["release"]
    known = frozenset(row["checksum"] for row in rows)
    read = partial(dispatcher.read, folder=diffusers.path, known=known)
    running = [Running(Probe("dispatcher", ("dispatcher",), read), host, site)]
    collect(running, start(running, until), host, fields, gaps, until)


def _read_code(host: Host, fields: dict[str, object]) -> None:
    """Read what decides calls of a Transformers or xformers that the tables do not know."""
    from attn_doctor.derived.releases import parts
    from attn_doctor.rulebook import library

    for row in library.tables()["code"]["release"]:
        package = fields.get(row["name"])
        if not isinstance(package, Package) or not package.path or package.version is None:
            continue
        if parts(package.version) > parts(row["version"]):
            from attn_doctor.probes.installed import code

            read = code.read(host, row["name"], package.path)
            fields[row["name"]] = replace(package, code=read)


def _printable(facts: Facts) -> Facts:
    """The facts without undecodable bytes, which paths and variables may hold on Linux."""
    try:
        to_json(facts)
    except UnicodeEncodeError:
        from attn_doctor.anonymize import rewritten

        return rewritten(facts, lambda text: text.encode("utf-8", "replace").decode())
    return facts


def facts_of(
    host: Callable[[], Host],
    snapshot: str,
    python: str,
    pretended: Sequence[str] = (),
    limit: float = LIMIT,
) -> Facts:
    """The facts of a snapshot, or else of a machine and its interpreter, with simulated parts.

    `host`: makes the machine, which a snapshot does not need. `pretended`: the simulated parts.
    Raises `AttnDoctorError` for what cannot be read or is not known.
    """
    if snapshot:
        from attn_doctor.snapshot import load

        facts = load(snapshot)
        if not pretended:
            return derive(facts)  # the tables may know more than at the time of the snapshot
    else:
        facts = examine(host(), python, limit)
        if not pretended:
            return facts
    from attn_doctor.pretend import pretend
    from attn_doctor.rulebook import library

    return derive(pretend(facts, pretended, library.tables()))


def derive(facts: Facts) -> Facts:
    """Return the facts with all that follows from them and from today's tables.

    Snapshots are derived again too: the tables may know more than at the time of the snapshot.
    """
    from attn_doctor import derived
    from attn_doctor.rulebook import library

    return derived.derive(facts, library.tables())
