"""A project whose lock file decides what is installed in its environment.

What `fix` installs there is in no lock file, so the project's own tool takes it back when it runs
next. Only the folder of the environment is looked at, where such tools keep it (`.venv`); an
environment that lies elsewhere cannot be told from one without a project.
"""

from __future__ import annotations

from pathlib import Path

from attn_doctor.facts import Facts

#: Lock file → what restores it, and what keeps a package in it.
_TOOLS = {
    "uv.lock": ("`uv sync` takes", "`uv add`"),
    "poetry.lock": ("`poetry sync` takes", "`poetry add`"),
    "pdm.lock": ("`pdm sync` takes", "`pdm add`"),
    "Pipfile.lock": ("`pipenv clean` takes", "`pipenv install`"),
}


def warning(facts: Facts) -> str:
    """What becomes of packages that are installed past a lock file; empty where there is none."""
    prefix = facts.python.prefix
    if not prefix or facts.python.environment != "venv":
        return ""
    project = Path(prefix).parent
    for name, (restoring, keeping) in _TOOLS.items():
        if (project / name).is_file():
            return (
                f"{project / name} decides what belongs here: {restoring} back what is installed"
                f" past it. Keep a change with {keeping} too."
            )
    return ""
