"""The folders that the dynamic loader searches."""

from __future__ import annotations

from attn_doctor.probes.machine import loader
from tests.probes.answers import machine


def test_ld_library_path() -> None:
    host = machine(environ={"LD_LIBRARY_PATH": "/a/:lib;/a:"}, cwd="/project")
    assert loader.environment_folders(host) == ("/a", "/project/lib", "/project")
    assert loader.environment_folders(machine(environ={"LD_LIBRARY_PATH": ""})) == ()
    assert loader.environment_folders(machine(environ={"LD_LIBRARY_PATH": "/a"}, os="macos")) == ()


def test_the_folders_of_ldconfig() -> None:
    host = machine(
        {
            "/etc/ld.so.conf": "/first\ninclude ld.so.conf.d/*.conf # the rest\nhwcap 0 nosegneg\n",
            "/etc/ld.so.conf.d/b.conf": "# Multiarch support\n/usr/lib/x86_64-linux-gnu\n/first\n",
            "/etc/ld.so.conf.d/a.conf": "/usr/local/cuda/lib64/  # CUDA\nrelative\n",
            "/etc/ld.so.conf.d/old.conf.bak": "/bad\n",
        }
    )
    assert loader.system_folders(host) == (
        "/first",
        "/usr/local/cuda/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    )


def test_the_first_folder_that_holds_it() -> None:
    host = machine({"/b/libx.so": "", "/c/libx.so": ""})
    assert loader.find(host, "libx.so", ("/a", "/b", "/c")) == "/b/libx.so"
    assert loader.find(host, "liby.so", ("/a", "/b", "/c")) == ""
