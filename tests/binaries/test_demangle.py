"""Linker's names as a reader knows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.binaries.demangle import readable

STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"_ZN3c106detail14torchCheckFailEPKcS2_jRK{STRING}", "c10::detail::torchCheckFail(…)"),
        (f"_ZN3c105ErrorC2ENS_14SourceLocationE{STRING}", "c10::Error::Error(…)"),
        ("_ZN3c105ErrorD1Ev", "c10::Error::~Error(…)"),
        ("_ZNK3c1010TensorImpl5sizesEv", "c10::TensorImpl::sizes(…)"),
        ("_ZTVN3c105ErrorE", "vtable of c10::Error"),
        ("_ZTIN2at10TensorBaseE", "type of at::TensorBase"),
        ("_ZN6caffe28TypeMeta21_typeMetaDataInstanceIdEEPKNS_6detail12TypeMetaDataEv",
         "caffe2::TypeMeta::_typeMetaDataInstance<…>(…)"),
        ("_ZlsRSoRKN3c104SymIntE", "_ZlsRSoRKN3c104SymIntE"),
        ("aoti_torch_abi_version", "aoti_torch_abi_version"),
        ("_Z99x", "_Z99x"),
        ("_ZN", "_ZN"),
        ("_Z0", "_Z0"),
    ],
)  # fmt: skip
def test_names(name: str, text: str) -> None:
    assert readable(name) == text


@given(st.text(alphabet="_ZNKTVISt0123456789abcE", max_size=60))
def test_any_name_gives_a_name(name: str) -> None:
    assert readable("_Z" + name)
