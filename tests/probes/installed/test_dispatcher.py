"""Diffusers' attention dispatcher as text: what counts in it, and what a changed one means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from attn_doctor import derived
from attn_doctor.backends import own_source
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import matrix, requirements
from attn_doctor.backends.readiness import Readiness
from attn_doctor.facts import Dispatcher, Facts, Package
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.dispatcher import LIMIT, read
from attn_doctor.probes.installed.dispatcher_source import describe
from tests.command import whole_tables

#: A dispatcher in the form of Diffusers', much shorter.
SOURCE = '''
from ..utils import get_logger, is_flash_attn_available, is_kernels_available, is_version
from ..utils.constants import DIFFUSERS_ATTN_BACKEND
_REQUIRED_FLASH_VERSION = "2.6.3"
logger = get_logger(__name__)
_CAN_USE_FLASH_ATTN = is_flash_attn_available() and is_version(">=", _REQUIRED_FLASH_VERSION)
if _CAN_USE_FLASH_ATTN:
    try:
        from flash_attn import flash_attn_func
    except (ImportError, OSError) as e:
        logger.warning(f"failed: {e}")
        flash_attn_func = None
else:
    flash_attn_func = None

class AttentionBackendName(str, Enum):
    FLASH = "flash"
    FLASH_HUB = "flash_hub"
    NATIVE = "native"
    _NATIVE_MATH = "_native_math"

class _AttentionBackendRegistry:
    _active_backend = AttentionBackendName(DIFFUSERS_ATTN_BACKEND)

_HUB_KERNELS_REGISTRY: dict = {
    AttentionBackendName.FLASH_HUB: _Config(repo_id="kernels-community/flash-attn2", version=3),
}

def attention_backend(backend):
    _check_attention_backend_requirements(backend)
    _maybe_download_kernel_for_backend(backend)

def dispatch_attention_fn(query, attn_mask=None, backend=None):
    """Call the backend."""
    return _AttentionBackendRegistry.get(backend)(query, attn_mask)

def _check_attention_backend_requirements(backend: AttentionBackendName) -> None:
    if backend in [AttentionBackendName.FLASH]:
        if not _CAN_USE_FLASH_ATTN:
            raise RuntimeError(f"install flash-attn>={_REQUIRED_FLASH_VERSION}")
    elif backend == AttentionBackendName.FLASH_HUB:
        if not is_kernels_available():
            raise RuntimeError("install kernels")

def _maybe_download_kernel_for_backend(backend):
    from kernels import get_kernel
    get_kernel(_HUB_KERNELS_REGISTRY[backend].repo_id)

def _check_dtype(query):
    if query.dtype not in (torch.bfloat16, torch.float16):
        raise ValueError("half precision")

@_AttentionBackendRegistry.register(
    AttentionBackendName.FLASH, constraints=[_check_dtype], supports_context_parallel=True
)
def _flash(query: torch.Tensor, attn_mask=None, _parallel_config=None):
    if attn_mask is not None:
        raise ValueError("no mask")
    if _parallel_config is None:
        return flash_attn_func(q=query, causal=False)
    return _ring(query)

@_AttentionBackendRegistry.register(AttentionBackendName.FLASH_HUB, constraints=[_check_dtype])
def _flash_hub(query, attn_mask=None):
    return _HUB_KERNELS_REGISTRY[AttentionBackendName.FLASH_HUB].kernel_fn(query)

@_AttentionBackendRegistry.register(AttentionBackendName.NATIVE)
def _native(query, attn_mask=None):
    query = query.permute(0, 2, 1, 3)
    return torch.nn.functional.scaled_dot_product_attention(query, attn_mask=attn_mask)

@_AttentionBackendRegistry.register(AttentionBackendName._NATIVE_MATH)
def _native_math(query, attn_mask=None):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(query, attn_mask=attn_mask)

def _ring(query):
    return flash_attn_func(q=query)
'''
PLAIN = describe(SOURCE)
TABLES: Mapping[str, Any] = {
    **whole_tables(),
    "dispatcher": {
        "release": [
            {
                "version": "0.42.1",
                "checksum": "0" * 64,
                "shared": PLAIN.shared,
                "code": dict(zip(PLAIN.names or (), PLAIN.codes or (), strict=True)),
            }
        ]
    },
}
NONE: tuple[str, ...] = ()
EVERY = ("flash", "flash_hub", "native", "_native_math")


def facts(found: Dispatcher, version: str = "0.43.0") -> Facts:
    """Facts of a machine with this dispatcher."""
    diffusers = Package(installed=True, version=version)
    return derived.derive(Facts(diffusers=diffusers, dispatcher=found), TABLES)


def test_what_is_read() -> None:
    assert PLAIN.names == EVERY
    assert PLAIN.masks == ("refuses", "drops", "takes", "takes")
    assert PLAIN.hub == ("", "kernels-community/flash-attn2", "", "")
    assert len({*(PLAIN.codes or ())}) == 4


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        # What changes nothing.
        ('"""Call the backend."""', "# nothing", NONE),
        ('ValueError("no mask")', 'ValueError("masks are not supported")', NONE),
        ("query: torch.Tensor, attn_mask", "query: Tensor, attn_mask", NONE),
        ("return _ring(query)", "return _ring(query, 2)", NONE),
        (", supports_context_parallel=True", "", NONE),
        ('logger.warning(f"failed: {e}")', 'logger.error("failed")', NONE),
        ("def _check_dtype(query):", "def _check_dtype(query):\n    # half", NONE),
        # What changes one backend.
        ('"2.6.3"', '"2.7.0"', ("flash",)),
        ("(ImportError, OSError)", "ImportError", ("flash",)),
        (
            "    if attn_mask is not None:\n        raise",
            "    if False:\n        raise",
            ("flash",),
        ),
        ("q=query, causal=False", "q=query, causal=True", ("flash",)),
        ("constraints=[_check_dtype], supp", "constraints=[], supp", ("flash",)),
        ("if not is_kernels_available()", "if is_kernels_available()", ("flash_hub",)),
        ("version=3", "version=4", ("flash_hub",)),
        ("flash-attn2", "flash-attn4", ("flash_hub",)),
        ("from kernels import get_kernel", "from kernels import load", ("flash_hub",)),
        ("permute(0, 2, 1, 3)", "permute(0, 1, 2, 3)", ("native",)),
        ("SDPBackend.MATH", "SDPBackend.FLASH_ATTENTION", ("_native_math",)),
        ('_NATIVE_MATH = "_native_math"', '_NATIVE_MATH = "math"', ("math",)),
        # What changes several.
        ("torch.float16)", "torch.float16, torch.float32)", ("flash", "flash_hub")),
    ],
)
def test_what_counts(old: str, new: str, changed: tuple[str, ...]) -> None:
    assert SOURCE.count(old) >= 1
    found = facts(describe(SOURCE.replace(old, new), "1" * 64)).dispatcher
    assert (found.changed, found.shared_changed) == (changed, False)


def test_code_that_all_share() -> None:
    text = SOURCE.replace("return _AttentionBackendRegistry", "query = f(query)\n    return _Att")
    found = facts(describe(text, "1" * 64))
    assert found.dispatcher.shared_changed
    (newer,) = found.newer_releases or ()
    assert newer.basis == "known"
    assert "all its backends share has changed" in (newer.text or "")


@pytest.mark.parametrize(
    "text", ["", "def f(:", SOURCE.replace("dispatch_attention_fn", "dispatch"), "x = 1"]
)
def test_another_form_is_unknown(text: str) -> None:
    found = facts(describe(text, "1" * 64))
    (newer,) = found.newer_releases or ()
    assert newer.basis == "unknown"
    table = matrix(found, (), (AttentionCall(),), "diffusers")
    assert {row.answers[0].state for row in table.rows} == {Readiness.UNKNOWN}


def test_a_release_with_a_known_file() -> None:
    found = facts(Dispatcher(checksum="0" * 64))
    assert found.dispatcher.release == "0.42.1"
    assert (found.dispatcher.reference, found.dispatcher.changed) == ("", ())
    (newer,) = found.newer_releases or ()
    assert newer.basis == "source"
    assert newer.text == (
        "Diffusers 0.43.0 is newer than these rules know (0.42.1): its attention dispatcher is that"
        " of 0.42.1"
    )


def test_a_listed_release_with_another_file() -> None:
    text = SOURCE.replace('"2.6.3"', '"2.7.0"')
    (newer,) = facts(describe(text, "1" * 64), "0.42.1").newer_releases or ()
    assert newer.text == (
        "Diffusers 0.42.1 has another attention dispatcher than 0.42.1: evaluated from its own"
        " source; its code for flash is not known"
    )
    assert facts(Dispatcher(checksum="0" * 64), "0.42.1").newer_releases is None
    assert facts(Dispatcher(checksum=""), "0.34.0").newer_releases is None


def test_changed_code_for_xformers_is_unknown_too() -> None:
    found = facts(describe(SOURCE.replace('"2.6.3"', '"2.7.0"'), "1" * 64))
    found = replace(found, dispatcher=replace(found.dispatcher, changed=("xformers",)))
    own = own_source.requirement(found, "diffusers", "xformers", "")
    assert own is not None
    assert "other code for xformers than 0.42.1" in own.text


def test_rows_of_names_that_changed_came_and_went() -> None:
    text = SOURCE.replace('"2.6.3"', '"2.7.0"').replace(
        'NATIVE = "native"', 'NATIVE = "native"\n    FLASH_9 = "flash_9"'
    )
    found = facts(describe(text, "1" * 64))
    table = matrix(found, (), (AttentionCall(), AttentionCall(mask="bool")), "diffusers")
    row = table.row("flash")
    assert row.known
    assert [answer.state for answer in row.answers] == [Readiness.UNKNOWN] * 2
    assert "other code for flash than 0.42.1" in row.answers[0].reasons[0].text
    assert "also has flash_9" in table.note
    gone = table.row("xformers")
    assert not gone.known
    assert gone.answers[0].state is Readiness.NOT_READY
    same = matrix(facts(Dispatcher(), "0.42.1"), (), (AttentionCall(),), "diffusers")
    assert table.row("native").answers[0].state is same.row("native").answers[0].state
    _, results = requirements(found, (), (AttentionCall(),), "flash", "diffusers")
    assert results[0][0].id == "dispatcher-known"


def test_simpletuner_reaches_the_same_code() -> None:
    found = facts(describe(SOURCE.replace('"2.6.3"', '"2.7.0"'), "1" * 64))
    table = matrix(found, (), (AttentionCall(),), "simpletuner")
    assert table.row("flash-attn").answers[0].state is Readiness.UNKNOWN


def test_only_the_checksum_of_a_known_file_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "attention_dispatch.py").write_text(SOURCE)
    checksum = LocalHost().checksum(str(folder / "attention_dispatch.py"), LIMIT)
    gaps = Gaps()

    def found(known: set[str]) -> Dispatcher:
        site: Any = Site
        result: Dispatcher = read(LocalHost(), site, gaps, str(tmp_path), known)["dispatcher"]
        return result

    assert asdict(found({checksum})) == asdict(Dispatcher(checksum=checksum))
    assert found(set()).names == EVERY
    (folder / "attention_dispatch.py").unlink()
    (folder / "other.py").write_text("")
    assert found(set()) == Dispatcher(checksum="")
    assert gaps.reasons == {}
