"""`attn-doctor build-kernels`: compile FlexAttention kernels before the first step needs them.

`options.py` has the options, `request.py` makes of them what is to be built, and
`run.py` builds it; `warmup.py` runs a program of the user's own in its place.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from attn_doctor.cli.build_kernels import options
from attn_doctor.cli.format_option import Format

if TYPE_CHECKING:
    from attn_doctor.cli.build_kernels.request import How
    from attn_doctor.kernels.builder.spec_requests import SpecArgs

EPILOG = """Examples:

- attn-doctor build-kernels --preset flux1
- attn-doctor build-kernels --heads 24 --head-dim 128 --length 4608 --mask causal
- attn-doctor build-kernels --spec kernels.toml --check (in CI: 1 if anything would be built)
- attn-doctor build-kernels -- python warmup.py --steps 1 (whatever your program compiles)
- attn-doctor build-kernels (again what the folder's record names)
- attn-doctor build-kernels --target h200 --cache-dir /opt/kernels --preset flux1 (without a GPU)

Some guides name a function build_flex_attention_kernels of torch: no released torch has it. This
command does what they promise, by compiling the kernels as training will."""


def build_kernels(
    ctx: typer.Context,
    program: options.Program = None,
    preset: options.Preset = None,
    list_presets: options.ListPresets = False,
    spec: options.Spec = None,
    heads: options.Heads = "",
    kv_heads: options.KvHeads = "",
    head_dim: options.HeadDim = "",
    value_dim: options.ValueDim = "",
    length: options.Length = None,
    kv_length: options.KvLength = "",
    batch: options.Batch = "",
    dtype: options.Dtype = "",
    mask: options.Mask = "",
    window: options.Window = "",
    mask_rows: options.MaskRows = "",
    per_head: options.PerHead = "",
    phase: options.Phase = "",
    layout: options.Layout = "",
    fused_width: options.FusedWidth = "",
    scale: options.Scale = "",
    dynamic: options.Dynamic = "",
    mode: options.Mode = "",
    option: options.Option = None,
    block: options.Block = False,
    target: options.Targets = None,
    list_targets: options.ListTargets = False,
    devices: options.Devices = None,
    artifact: options.Artifact = None,
    docker: options.Docker = False,
    unpadded: options.Unpadded = False,
    fit: options.Fit = False,
    cache_dir: options.CacheDir = "",
    python: options.Python = "",
    device: options.Device = "",
    jobs: options.Jobs = None,
    timeout: options.Timeout = None,
    force: options.Force = False,
    prove: options.Prove = True,
    dry_run: options.DryRun = False,
    check: options.Check = False,
    format: options.Output = Format.text,
    verbose: options.Verbose = False,
) -> None:
    """Compile FlexAttention kernels ahead of time, prove them, and keep a record beside the caches.

    Each kernel is compared with a float64 reference, gradients included, and a second process must
    reuse it without running a compiler. A spec that fails is explained, and the rest go on. For a
    --target that is not here everything compiles truly and nothing runs: its kernels stay
    unverified until `attn-doctor cache verify` or `cache import` has compared them on that GPU.

    Exit codes: 0 all kernels are built and reused, 1 some are not (with --check: something would be
    built) or the device is missing, 2 wrong usage, 3 attn-doctor failed, 130 interrupted.
    """
    import msgspec

    from attn_doctor.cli.build_kernels.request import How
    from attn_doctor.kernels.builder.devices import DeviceError, NoGpuError
    from attn_doctor.kernels.builder.spec_requests import SpecArgs

    as_json = format is Format.json
    if list_presets or list_targets:
        sys.stdout.write(_listed(as_json, targets=list_targets))
        raise typer.Exit
    given = SpecArgs(
        heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim, dtype=dtype,
        mask=mask, window=window, mask_rows=mask_rows, per_head=per_head, length=length or (),
        kv_length=kv_length, batch=batch, phase=phase, layout=layout, fused_width=fused_width,
        scale=scale, dynamic=dynamic, mode=mode, option=option or (), preset=preset or (),
        spec=[str(path) for path in spec or ()], block=block,
    )  # fmt: skip
    nothing = not any(msgspec.structs.asdict(msgspec.structs.replace(given, device="")).values())
    if program and not nothing:
        raise typer.BadParameter("a warm-up decides itself what is compiled: drop the spec options")
    how = How(
        python=python, device=device, cache_dir=cache_dir, jobs=jobs, timeout=timeout, force=force,
        targets=tuple(target or ()), devices=devices, artifact=artifact, dry_run=dry_run,
        check=check, fit=fit, prove=prove, unpadded=unpadded, as_json=as_json, verbose=verbose,
    )  # fmt: skip
    _together(how, docker=docker, program=bool(program))
    try:
        if docker:
            from attn_doctor.cli.build_kernels.docker import docker_stage

            sys.stdout.write(docker_stage(ctx, None if nothing else given, how, program or []))
            raise typer.Exit
        raise typer.Exit(_built(None if nothing else given, how, program or []))
    except NoGpuError as error:
        sys.stderr.write(f"attn-doctor: {error.told(sys.argv[1:])}\n")
        raise typer.Exit(1) from None
    except DeviceError as error:
        sys.stderr.write(f"attn-doctor: {error}\n")
        raise typer.Exit(1) from None


def _built(given: SpecArgs | None, how: How, program: list[str]) -> int:
    """Build what was asked for. Returns the exit code."""
    if program:
        from attn_doctor.cli.build_kernels.warmup import run_warmups

        return run_warmups(program, how)
    if how.fit:
        from attn_doctor.cli.build_kernels.fit import fitted

        return fitted(given, how)
    from attn_doctor.cli.build_kernels.request import asked
    from attn_doctor.cli.build_kernels.run import run

    return run(asked(given, how), how)


def _together(how: How, *, docker: bool, program: bool) -> None:
    """Raise a usage error for options that make no sense together."""
    if not how.targets:
        given = {"--devices": how.devices, "--docker": docker, "--fit": how.fit}
        for option, value in {**given, "--unpadded": how.unpadded}.items():
            if value:
                raise typer.BadParameter(
                    f"{option} has a meaning only with --target, which names a GPU of another"
                    " machine (--list-targets)"
                )
    elif how.device:
        raise typer.BadParameter(
            "--device names a device of this machine, --target one of another: drop one of them"
            " (--devices N builds for N GPUs of the target)"
        )
    if how.fit and (program or how.check):
        raise typer.BadParameter("--fit compiles specs, and builds nothing: give it alone")
    if how.artifact is not None and (how.fit or how.check or how.dry_run or docker):
        raise typer.BadParameter(
            "--artifact is written after a build: drop it, or the other option"
        )


def _listed(as_json: bool, *, targets: bool) -> str:
    """The presets, or the GPUs that are known."""
    if targets:
        from attn_doctor.cli.build_kernels.run import paper_of
        from attn_doctor.kernels.gpus.known import listing
        from attn_doctor.render.build_kernels.targets import listing_json, listing_text

        found = listing()
        return listing_json(found) if as_json else listing_text(found, paper_of(sys.stdout))
    from attn_doctor.kernels.builder.presets import listing as presets

    rows = presets()
    if as_json:
        import msgspec

        return msgspec.json.encode(rows).decode() + "\n"
    width = max(len(name) for name, _, _ in rows)
    return "".join(f"{name:<{width}}  {count:>3}  {title}\n" for name, title, count in rows)
