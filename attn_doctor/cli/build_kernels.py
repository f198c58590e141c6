"""`attn-doctor build-kernels`: compile FlexAttention kernels before the first step needs them."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from attn_doctor.builder.outcome import Report
    from attn_doctor.builder.run import Plan, Request
    from attn_doctor.builder.wishes import Given
    from attn_doctor.facts import Facts
    from attn_doctor.render.paper import Paper

__all__ = ["build_kernels"]

EPILOG = """Examples:
  attn-doctor build-kernels --preset flux1
  attn-doctor build-kernels --heads 24 --head-dim 128 --length 4608 --mask causal
  attn-doctor build-kernels --spec kernels.toml --jobs 8
  attn-doctor build-kernels --spec kernels.toml --check    # in CI: 1 if anything would be built
  attn-doctor build-kernels -- python warmup.py --steps 1  # whatever your program compiles
  attn-doctor build-kernels                                # again what the folder's record names

Some guides name a function build_flex_attention_kernels of torch: no released torch has it. This
command does what they promise, by compiling the kernels as training will."""

_SPEC, _BUILD, _SHOW = "What to build", "How to build", "What to show"


class Format(str, Enum):
    """How the result is written."""

    text = "text"
    json = "json"


def build_kernels(
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND…]",
            help="Your own warm-up, run unchanged with the caches recorded, and once more to prove"
            " that it hits.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="A model family such as flux1 or wan21-14b; may be repeated.",
            rich_help_panel=_SPEC,
            show_default=False,
        ),
    ] = None,
    list_presets: Annotated[
        bool, typer.Option("--list-presets", help="Show the presets.", rich_help_panel=_SPEC)
    ] = False,
    spec: Annotated[
        list[Path] | None,
        typer.Option(
            "--spec",
            metavar="FILE",
            help="A TOML file of specs; may be repeated.",
            rich_help_panel=_SPEC,
            show_default=False,
        ),
    ] = None,
    heads: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Query heads. A value may be a list, 24,40: lists multiply.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    kv_heads: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Key and value heads, in grouped-query attention.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    head_dim: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Size of each head.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    value_dim: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Size of each value head, where it differs.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    length: Annotated[
        list[str] | None,
        typer.Option(
            "--length",
            metavar="TOKENS",
            help="Query length. 1024+2048: one program sees both, in this order; 1024,2048: two"
            " programs do.",
            rich_help_panel=_SPEC,
            show_default=False,
        ),
    ] = None,
    kv_length: Annotated[
        str,
        typer.Option(
            metavar="TOKENS",
            help="Key length, in cross-attention.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    batch: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Batch size.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    dtype: Annotated[
        str,
        typer.Option(
            metavar="DTYPE",
            help="bf16 (default), fp16 or fp32.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    mask: Annotated[
        str,
        typer.Option(
            metavar="MASK",
            help="none (default), causal, document, sliding-window, bool, float, or your own"
            " module:function.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    window: Annotated[
        str,
        typer.Option(
            metavar="TOKENS",
            help="How far a sliding window looks back.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    mask_rows: Annotated[
        str,
        typer.Option(
            metavar="true|false",
            help="A bool or float mask differs by query row.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    per_head: Annotated[
        str,
        typer.Option(
            metavar="true|false",
            help="The block mask has rows for each batch and head, as Diffusers makes it.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    phase: Annotated[
        str,
        typer.Option(
            metavar="PHASE",
            help="training, inference or both. Default: training, on the CPU inference.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    layout: Annotated[
        str,
        typer.Option(
            metavar="LAYOUT",
            help="Memory of q, k, v: bhsd (default), bshd (as Diffusers makes it), fused-qkv or"
            " fused-v.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    fused_width: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Elements per token of the fused projection.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    scale: Annotated[
        str,
        typer.Option(
            metavar="X",
            help="Softmax scale, if your program gives one.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    dynamic: Annotated[
        str,
        typer.Option(
            metavar="true|false",
            help="torch.compile(dynamic=…), if your program gives it.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="torch.compile(mode=…), if your program gives it.",
            rich_help_panel=_SPEC,
        ),
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="One of flex_attention's kernel_options; may be repeated.",
            rich_help_panel=_SPEC,
            show_default=False,
        ),
    ] = None,
    block: Annotated[
        bool,
        typer.Option(
            "--block",
            help="Build a preset's real transformer block, compiled as a whole; needs diffusers.",
            rich_help_panel=_SPEC,
        ),
    ] = False,
    cache_dir: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="Cache folder. Default: TORCHINDUCTOR_CACHE_DIR, else torch's own.",
            rich_help_panel=_BUILD,
        ),
    ] = "",
    python: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Interpreter or environment to build with, as in check.",
            rich_help_panel=_BUILD,
        ),
    ] = "",
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="cuda, cuda:N, all (a kernel is for one GPU index), or cpu. Default: cuda:0.",
            rich_help_panel=_BUILD,
        ),
    ] = "",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            metavar="N",
            help="Processes at once. Default: what cores, memory and GPU memory allow.",
            rich_help_panel=_BUILD,
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            metavar="SECONDS",
            help="Longest time for one spec. Default: 600, for a warm-up none.",
            rich_help_panel=_BUILD,
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Build what is up to date as well.", rich_help_panel=_BUILD),
    ] = False,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove/--no-prove",
            help="Run a warm-up a second time and require that it compiles nothing.",
            rich_help_panel=_BUILD,
        ),
    ] = True,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            "-n",
            help="Show what would be cleared and built, and how long it takes.",
            rich_help_panel=_SHOW,
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Build nothing; exit with 1 if anything would be built.",
            rich_help_panel=_SHOW,
        ),
    ] = False,
    format: Annotated[
        Format, typer.Option(help="How to write the result.", rich_help_panel=_SHOW)
    ] = Format.text,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List every file.", rich_help_panel=_SHOW)
    ] = False,
) -> None:
    """Compile FlexAttention kernels ahead of time, prove them, and keep a record beside the caches.

    Each kernel is compared with a float64 reference, gradients included, and a second process must
    reuse it without running a compiler. A spec that fails is explained, and the rest go on.

    Exit codes: 0 all kernels are built and reused, 1 some are not (with --check: something would be
    built) or the device is missing, 2 wrong usage, 3 attn-doctor failed, 130 interrupted.
    """
    import msgspec

    from attn_doctor.builder.devices import DeviceError
    from attn_doctor.builder.wishes import Given

    if list_presets:
        sys.stdout.write(_presets(format))
        raise typer.Exit
    given = Given(
        heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim, dtype=dtype,
        mask=mask, window=window, mask_rows=mask_rows, per_head=per_head, length=length or (),
        kv_length=kv_length, batch=batch, phase=phase, layout=layout, fused_width=fused_width,
        scale=scale, dynamic=dynamic, mode=mode, option=option or (), preset=preset or (),
        spec=[str(path) for path in spec or ()], block=block,
    )  # fmt: skip
    nothing = not any(msgspec.structs.asdict(msgspec.structs.replace(given, device="")).values())
    if program and not nothing:
        raise typer.BadParameter("a warm-up decides itself what is compiled: drop the spec options")
    try:
        if program:
            from attn_doctor.cli.warmup import run_warmup

            code = run_warmup(
                program, _facts(python), device, cache_dir, prove=prove, limit=timeout,
                dry_run=dry_run or check, as_json=format is Format.json,
            )  # fmt: skip
            raise typer.Exit(code)
        asked = None if nothing else given
        request, notes = _request(asked, python, device, cache_dir, jobs, timeout, force)
        raise typer.Exit(_run(request, notes, dry_run, check, format, verbose))
    except DeviceError as error:
        sys.stderr.write(f"attn-doctor: {error}\n")
        raise typer.Exit(1) from None


def _facts(python: str) -> Facts:
    from attn_doctor.host.local import LocalHost
    from attn_doctor.pipeline import examine

    return examine(LocalHost(), python)


def _request(
    given: Given | None,
    python: str,
    device: str,
    cache_dir: str,
    jobs: int | None,
    timeout: float | None,
    force: bool,
) -> tuple[Request, list[str]]:
    import msgspec

    from attn_doctor.builder.devices import cache_folder, children_environment, devices
    from attn_doctor.builder.run import Request
    from attn_doctor.builder.wishes import wished

    # What was written is read first: a slip in it matters on any machine.
    if given is not None:
        wished(given)
    facts = _facts(python)
    folder = cache_folder(facts, cache_dir)
    only: frozenset[str] | None = None
    notes: list[str] = []
    if given is None:
        from attn_doctor.builder.recorded import recorded

        known = recorded(facts, folder, device)
        targets, specs, only = known.devices, known.specs, known.keys
        sys_path: tuple[str, ...] = (os.getcwd(),)
        notes += known.notes
    else:
        targets = devices(facts, device)
        wishes = wished(msgspec.structs.replace(given, device=targets[0]))
        specs, sys_path = wishes.specs, wishes.sys_path
        notes += wishes.notes
    environ, remark = children_environment(os.environ, str(folder))
    request = Request(
        specs=specs,
        devices=targets,
        facts=facts,
        folder=folder,
        environ=environ,
        sys_path=sys_path,
        only=only,
        jobs=jobs,
        limit=timeout or 600.0,
        force=force,
    )
    return request, [*notes, *([remark] if remark else [])]


def _run(
    request: Request, notes: list[str], dry_run: bool, check: bool, format: Format, verbose: bool
) -> int:
    from attn_doctor.builder import stamp
    from attn_doctor.builder.run import Build, planned
    from attn_doctor.cli.signals import Signals, TerminatedError

    if dry_run or check:
        plan = planned(request, stamp.load(request.folder) or stamp.empty())
        code = int(check and bool(plan.todo))
        sys.stdout.write(_plan(plan, request, format, code, verbose))
        return code
    paper = _paper(sys.stderr)
    interrupted = 0
    stopped: Exception | None = None
    with _watcher(paper) as watcher:
        build = Build(request, watcher)
        build.notes += notes
        try:
            with Signals():
                if build.plan.todo or build.plan.unknown:
                    build.run()
        except (KeyboardInterrupt, TerminatedError) as error:
            interrupted = getattr(error, "code", 130)
        except _stops() as error:
            stopped = error
        except OSError as error:
            # Whatever was finished before a disk ran full is written down.
            raise _unwritable(request, error) from None
    if stopped is not None:
        return _stopped(stopped, request, paper)
    report = build.report()
    code = interrupted or int(bool(report.failed))
    sys.stdout.write(_report(report, format, code, verbose))
    return code


def _unwritable(request: Request, error: OSError) -> Exception:
    from attn_doctor.errors import AttnDoctorError

    what = error.filename or request.folder
    return AttnDoctorError(f"{what}: {error.strerror or error}; name another --cache-dir")


def _stops() -> tuple[type[Exception], ...]:
    from attn_doctor.builder.lock import LockLostError
    from attn_doctor.builder.pool import PoolError

    return (PoolError, LockLostError)


def _stopped(error: Exception, request: Request, paper: Paper) -> int:
    """The build could not go on at all: torch cannot be imported, or the lock was lost."""
    from attn_doctor.builder.outcome import explained
    from attn_doctor.builder.pool import PoolError
    from attn_doctor.render.explanation_text import text

    if not isinstance(error, PoolError):
        sys.stderr.write(
            f"attn-doctor: this build stood still for so long that another one took over"
            f" {request.folder}; what was finished before is kept\n"
        )
        return 1
    sys.stderr.write(f"attn-doctor: torch cannot be imported: {error.message}\n")
    found = explained([error.log], error.message, request.facts)
    if found is not None:
        sys.stdout.write(text(found, paper))
    sys.stderr.write(f"log: {error.log}\n")
    return 1


def _watcher(paper: Paper) -> Any:
    from attn_doctor.render.build_progress import Bar, Lines

    return Bar(paper) if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else Lines(paper)


def _paper(stream: Any) -> Paper:
    from attn_doctor.render.paper import Paper

    return Paper.of(stream, dict(os.environ))


def _plan(plan: Plan, request: Request, format: Format, code: int, verbose: bool) -> str:
    if format is Format.json:
        from attn_doctor.render.build_json import plan_json

        return plan_json(plan, str(request.folder), code)
    from attn_doctor.render.build_text import plan_text

    folder = str(request.folder)
    return plan_text(plan, folder, request.facts, _paper(sys.stdout), verbose=verbose)


def _report(report: Report, format: Format, code: int, verbose: bool) -> str:
    if format is Format.json:
        from attn_doctor.render.build_json import report_json

        return report_json(report, code)
    from attn_doctor.render.build_text import report_text

    return report_text(report, _paper(sys.stdout), verbose=verbose)


def _presets(format: Format) -> str:
    from attn_doctor.builder.presets import listing

    found = listing()
    if format is Format.json:
        import msgspec

        return msgspec.json.encode(found).decode() + "\n"
    width = max(len(name) for name, _, _ in found)
    return "".join(f"{name:<{width}}  {count:>3}  {title}\n" for name, title, count in found)
