"""Writes rules/tables/wheels/torch-symbols.tsv: which symbols of torch each release defines.

    python tools/torch_symbols.py WHEELS TORCH… > rules/tables/wheels/torch-symbols.tsv

WHEELS is a file with the address or path of a wheel of an extension on each line; their symbols are
listed. Each TORCH is a folder named after a release, `2.10.0`, into which its wheel from PyPI was
unpacked (`pip install --no-deps --target 2.10.0 torch==2.10.0`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from attn_doctor.wheels.reading import read
from attn_doctor.wheels.torch_symbols import InstalledTorch, table_text


def main() -> None:
    """Read wheels and torch, and print the table."""
    wheels, *folders = sys.argv[1:]
    names: set[str] = set()
    for source in Path(wheels).read_text("utf-8").split():
        for one in read(source).libraries:
            names |= {*(one.torch_symbols or ())}
    defined: dict[str, set[str]] = {name: set() for name in names}
    for folder in folders:
        release = Path(folder).name
        with InstalledTorch(str(Path(folder, "torch")), release) as torch:
            for name in names:
                if torch.defines(name):
                    defined[name].add(release)
    # A name that no release defines belongs to a nightly, or to a library beside torch.
    kept = {name: those for name, those in defined.items() if those}
    print("# Made by tools/torch_symbols.py from torch's wheels on PyPI (Linux, x86-64).")
    print("# GNU's hash of a mangled name, and the releases that define it, a bit for each.")
    sys.stdout.write(table_text([Path(one).name for one in folders], kept))


if __name__ == "__main__":
    main()
