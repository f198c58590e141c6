"""`attn-doctor build-kernels`: compile FlexAttention kernels before the first step needs them.

`options.py` declares the options, and `request.py` turns them into what is to be built. `run.py`
builds it, `fit.py` looks whether it fits a GPU, `docker.py` prints it as a stage of a Dockerfile,
and `warmup.py` runs a user's own program in its place.
"""

from __future__ import annotations

import sys

import typer

from attn_doctor.cli.build_kernels.options import BuildOptions

EPILOG = """Examples:

- attn-doctor build-kernels --preset flux1
- attn-doctor build-kernels --heads 24 --head-dim 128 --seq-len 4608 --mask causal
- attn-doctor build-kernels --spec kernels.toml --check (in CI: 1 if anything would be built)
- attn-doctor build-kernels -- python warmup.py --steps 1 (whatever your program compiles)
- attn-doctor build-kernels (again what the folder's record names)
- attn-doctor build-kernels --target h200 --cache-dir /opt/kernels --preset flux1 (without a GPU)"""


def build_kernels(
    ctx: typer.Context,
    chosen: BuildOptions,
) -> None:
    """Compile FlexAttention kernels ahead of time, verify them, and record them in a cache folder.

    Each kernel is compared with a float64 reference, gradients included, and a second process must
    reuse it without running a compiler. A kernel that fails is explained, and the others are built.
    With --target, kernels are compiled for the GPU of another machine and nothing runs: they stay
    unverified until `attn-doctor cache verify` or `cache import` has compared them on that GPU.

    Exit codes: 0 all kernels are built and reused, 1 some are not (with --check: something would be
    built) or the device is missing, 2 wrong usage, 3 attn-doctor failed, 130 interrupted.
    """
    from attn_doctor.kernels.builder.devices import DeviceError, NoGpuError

    if chosen.list_presets or chosen.list_targets:
        sys.stdout.write(_listed(chosen))
        raise typer.Exit
    _check_together(chosen)
    try:
        if chosen.docker:
            from attn_doctor.cli.build_kernels.docker import docker_stage

            sys.stdout.write(docker_stage(ctx, chosen))
            raise typer.Exit
        raise typer.Exit(_built(chosen))
    except NoGpuError as error:
        sys.stderr.write(f"attn-doctor: {error.with_command(sys.argv[1:])}\n")
        raise typer.Exit(1) from None
    except DeviceError as error:
        sys.stderr.write(f"attn-doctor: {error}\n")
        raise typer.Exit(1) from None


def _built(chosen: BuildOptions) -> int:
    """Build what was asked for. Returns the exit code."""
    if chosen.program:
        from attn_doctor.cli.build_kernels.warmup import run_warmups

        return run_warmups(chosen)
    if chosen.fit:
        from attn_doctor.cli.build_kernels.fit import fitted

        return fitted(chosen)
    from attn_doctor.cli.build_kernels.run import run

    return run(chosen)


def _check_together(chosen: BuildOptions) -> None:
    """Raise a usage error for options that have no meaning together."""
    if chosen.program and chosen.specs is not None:
        raise typer.BadParameter(
            "a warm-up program decides what is compiled: drop the options under What to build"
        )
    if not chosen.target:
        needs = {"--devices": chosen.devices, "--docker": chosen.docker, "--fit": chosen.fit}
        for option, value in {**needs, "--unpadded": chosen.unpadded}.items():
            if value:
                raise typer.BadParameter(
                    f"{option} has a meaning only with --target, which names a GPU of another"
                    " machine (--list-targets)"
                )
    elif chosen.device:
        raise typer.BadParameter(
            "--device names a device of this machine, --target one of another: drop one of them"
            " (--devices N builds for N GPUs of the target)"
        )
    if chosen.fit and (chosen.program or chosen.check):
        raise typer.BadParameter("--fit compiles specs and keeps nothing: give it alone")
    without_build = chosen.fit or chosen.check or chosen.dry_run or chosen.docker
    if chosen.artifact is not None and without_build:
        raise typer.BadParameter("--output is written after a build: drop it, or the other option")


def _listed(chosen: BuildOptions) -> str:
    """The presets, or the known GPUs."""
    if chosen.list_targets:
        from attn_doctor.cli.screen import terminal
        from attn_doctor.kernels.gpus.known import listing
        from attn_doctor.render.build_kernels.gpu_descriptors import listing_json, listing_text

        gpus = listing()
        if chosen.as_json:
            return listing_json(gpus)
        return listing_text(gpus, terminal(), verbose=bool(chosen.verbose))
    from attn_doctor.kernels.builder.presets import listing as presets

    rows = presets()
    if chosen.as_json:
        import msgspec

        return msgspec.json.encode(rows).decode() + "\n"
    width = max(len(name) for name, _, _ in rows)
    from attn_doctor.cli.screen import terminal as output

    lines = [f"{'preset':<{width}}  kernels  model"]
    lines += [f"{name:<{width}}  {count:>7}  {title}" for name, title, count in rows]
    return output().page(lines)
