"""Languages: what is translated, what stays English, and how wide characters are set."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from attn_doctor import translation
from attn_doctor.errors import AttnDoctorError
from attn_doctor.explain.where_it_fits import where_it_fits
from attn_doctor.language import LANGUAGES, chosen, take_option
from attn_doctor.render.terminal import Terminal, width_of
from attn_doctor.rulebook import library
from attn_doctor.translation import SLOT, catalogue, say

ROOT = Path(__file__).parents[1]
OTHERS = LANGUAGES[1:]


@pytest.fixture(scope="module")
def translations() -> Any:
    return runpy.run_path(str(ROOT / "tools" / "translations.py"))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ""),
        ({"LANG": "C.UTF-8"}, ""),
        ({"LANG": "zh_CN.UTF-8"}, "zh-CN"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, ""),
        ({"LANG": "pt_BR"}, "pt-BR"),
        ({"LC_MESSAGES": "hi_IN.UTF-8", "LANG": "de_DE"}, "hi"),
        ({"ATTN_DOCTOR_LANG": "en", "LANG": "zh_CN"}, ""),
        ({"ATTN_DOCTOR_LANG": "ZH_cn"}, "zh-CN"),
    ],
)
def test_the_language_of_an_environment(environ: dict[str, str], expected: str) -> None:
    assert chosen(environ) == expected


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(AttnDoctorError, match="choose from en, zh-CN, pt-BR, hi"):
        chosen({"ATTN_DOCTOR_LANG": "klingon"})


def test_the_option_may_stand_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTN_DOCTOR_LANG", raising=False)
    assert take_option(["check", "--lang", "hi", "-q"]) == ["check", "-q"]
    assert chosen() == "hi"
    assert take_option(["--lang=zh-CN", "x", "--", "--lang", "hi"]) == ["x", "--", "--lang", "hi"]
    assert chosen() == "zh-CN"
    with pytest.raises(AttnDoctorError, match="needs a language"):
        take_option(["check", "--lang"])


@pytest.mark.parametrize("name", OTHERS)
def test_a_translation_has_the_values_and_commands_of_its_text(name: str) -> None:
    assert catalogue(name).texts
    for text, said in catalogue(name).texts.items():
        assert sorted(SLOT.findall(text)) == sorted(SLOT.findall(said)), text
        assert sorted(re.findall("`[^`]+`", text)) == sorted(re.findall("`[^`]+`", said)), text


def test_no_language_lags_behind_the_others(translations: Any) -> None:
    first, *others = ({*catalogue(name).texts} for name in OTHERS)
    assert [first ^ one for one in others] == [set()] * len(others)
    done, _ = translations["share"](OTHERS[0])
    assert done > 400


@pytest.mark.parametrize("name", OTHERS)
def test_an_address_stays_in_a_translation(name: str) -> None:
    for text, said in catalogue(name).texts.items():
        address = r"https?://[\w./-]+\w"
        assert sorted(re.findall(address, text)) == sorted(re.findall(address, said)), text


def test_a_changed_text_of_a_rule_is_english_again() -> None:
    title = "triton is not installed"
    assert say(title, "pt-BR") == "O triton não está instalado"
    assert say(f"{title} here", "pt-BR") == f"{title} here"


def test_a_translation_of_a_changed_text_is_stale(
    translations: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = next(iter(translations["rule_texts"]()))
    texts = {current: "x", "no problems": "x", f"{current} zebra": "x", "{count} zebras": "x"}
    monkeypatch.setitem(
        translations["stale"].__globals__,
        "catalogue",
        lambda _: translation.Catalogue(texts, (), {}),
    )
    monkeypatch.setitem(translations["share"].__globals__, "general_texts", frozenset)
    assert translations["stale"]("hi") == [f"{current} zebra", "{count} zebras"]
    done, every = translations["share"]("hi")
    assert done == 1
    assert every > 1000


@pytest.mark.parametrize("name", OTHERS)
def test_a_label_leaves_room_in_its_column(name: str) -> None:
    terminal = Terminal(language=name)
    for label in ("seen", "fix", "or", "also", "at", "where", "cause", "page", "source", "check"):
        assert width_of(terminal.pad(label, 7)) == 7, label


def test_values_are_translated_too_and_the_rest_stays_english() -> None:
    assert say("2 errors, 1 note", "zh-CN") == "2 个错误，1 条提示"
    assert say("torch 2.4.1 is a CPU build, but this machine has an NVIDIA GPU", "zh-CN") == (
        "torch 2.4.1 是 CPU 版本，而这台机器有 NVIDIA GPU"
    )
    error = "RuntimeError: CUDA error: no kernel image is available"
    assert [say(error, name) for name in OTHERS] == [error] * 3
    assert say("It is raised by torch", "zh-CN") == "It is raised by torch"
    assert say("ready", "en") == "ready"


def test_where_a_command_fits_is_translated() -> None:
    words = {
        say(where_it_fits([line]), name)
        for rule in library.load()
        for lines in rule.fix_when
        for line in lines
        if not line.op.startswith("is ")
        for name in OTHERS
    }
    assert [one for one in words if re.search(r"\b(?:the|is|known|unknown)\b", one)] == []
    assert len(words) > 300
    several = (
        "Do this only if the compute capability of the best GPU is not 5.0 or 5.2"
        " and torch is a CPU or ROCm build."
    )
    assert say(several, "pt-BR") == (
        "Faça isto somente se a compute capability da melhor GPU não é 5.0 ou 5.2"
        " e o torch é um build CPU ou ROCm."
    )
    assert say(several, "zh-CN") == (
        "仅在以下条件成立时这样做：最强 GPU 的计算能力不为 5.0 或 5.2，"
        "且 torch 是 CPU 或 ROCm 版本。"
    )


def test_each_of_several_conditions_is_translated() -> None:
    conditions = "where: torch.from_pypi is yes and torch.index is not empty and gpu.sm is below 75"
    assert say(conditions, "pt-BR") == (
        "onde: torch.from_pypi é “sim” e torch.index não está vazio e gpu.sm é menor que 75"
    )
    assert say(conditions, "zh-CN") == (
        "条件：torch.from_pypi 为“是”，且 torch.index 不为空，且 gpu.sm 低于 75"
    )


def test_a_value_does_not_reach_beyond_its_part_of_a_line() -> None:
    line = "no GPU · torch 2.11.0+cu130, built for CUDA 13.0; triton 3.6.0"
    assert say(line, "zh-CN") == "无 GPU · torch 2.11.0+cu130，为 CUDA 13.0 构建；triton 3.6.0"
    assert say("native and flash, not fused", "zh-CN") == "native 和 flash，未融合"


def test_of_a_list_of_names_none_is_translated() -> None:
    listed = "build.missing_components is ninja, rules, kernel, wanted none"
    for name in OTHERS:
        assert "ninja, rules, kernel" in say(listed, name)
        assert say("torch.has_flex is no, wanted yes", name) != "torch.has_flex is no, wanted yes"
        for text in ("kernels is not installed", "kernels and diffusers not installed: sage_hub"):
            said = say(text, name)  # the package is not translated
            assert said != text
            assert "kernels" in said


def test_lines_of_wide_and_combining_characters_fit() -> None:
    text = (
        "当前安装的软件有 2 个已知缺陷，会使某些调用在不报错的情况下得到错误的结果："
        "`attn-doctor fix`。"
    )
    lines = Terminal(width=40).wrap(text, 2)
    assert len(lines) > 2
    assert all(width_of(line) <= 40 and line.startswith("  ") for line in lines)
    assert "`attn-doctor fix`。" in "\n".join(lines)
    assert "".join(line.strip() for line in lines).replace(" ", "") == text.replace(" ", "")
    assert (width_of("掩码"), width_of("नहीं"), width_of("máscara")) == (4, 3, 7)


def test_in_english_no_catalogue_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: str) -> None:
        raise AssertionError

    monkeypatch.setattr(translation, "catalogue", refused)
    assert Terminal().wrap("no problems", 0) == ["no problems"]


def test_a_text_with_another_command_is_translated() -> None:
    text = "`attn-doctor rules list` shows them"
    assert say(text, "hi") == "`attn-doctor rules list` सब दिखाता है"
    assert (
        say(text.replace("rules", "here rules"), "hi")
        == "`attn-doctor here rules list` सब दिखाता है"
    )


@pytest.mark.parametrize("name", OTHERS)
def test_a_reason_with_a_colon_and_the_rules_behind_it(name: str) -> None:
    reason = "/a cannot be read: Permission denied"
    said = Terminal(language=name).joined(reason, "7 rules")
    assert said.startswith(say(reason, name))
    assert said.endswith(say("7 rules", name))
    assert "denied" not in said
    assert "rules" not in said


def test_a_title_is_translated_beside_its_subject() -> None:
    title = "This machine has no GPU"
    for other in OTHERS:
        said = say(f"{title} (GPU 0)", other)
        assert said.startswith(say(title, other))
        assert said.rstrip(")）").endswith("GPU 0")


def test_columns_of_words_that_stay_keep_their_spaces() -> None:
    line = "  x  name-of-a-cause, y  [a/rule]"
    assert {say(line, language) for language in OTHERS} == {line}


@pytest.mark.parametrize(
    ("english", "portuguese"),
    [
        ("q.size(-2) is at least 128", "q.size(-2) é no mínimo 128"),
        ("causal is not given", "causal não é dado"),
        ("head_size is a multiple of 8", "head_size é múltiplo de 8"),
        (
            "q is contiguous or k is on a CUDA device",
            "q é contíguo ou k está em um dispositivo CUDA",
        ),
        ("layout is 'thd'", "layout é 'thd'"),
    ],
)
def test_what_a_check_in_code_wants_is_translated(english: str, portuguese: str) -> None:
    assert say(english, "pt-BR") == portuguese
