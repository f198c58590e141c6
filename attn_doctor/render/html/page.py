"""The frame of a page: its head, its style for light, dark and paper, and its landmarks."""

from __future__ import annotations

from collections.abc import Iterable

from attn_doctor._version import __version__
from attn_doctor.language import chosen
from attn_doctor.render.html.elements import Html, join, prose, tag

#: Name → colours of text and ground, in light and in dark. Each pair has a contrast of 4.5 or more.
COLOURS = {
    "ready": ("#0a5c2b", "#e3f4e8", "#7fe0a3", "#12301f"),
    "command": ("#0b4a94", "#e4effc", "#9cc8ff", "#132a45"),
    "not-ready": ("#0b4a94", "#ffffff", "#9cc8ff", "#15191d"),
    "slow": ("#6e4500", "#fff2cf", "#ffd27a", "#33270a"),
    "wrong": ("#ffffff", "#a3151f", "#1c0506", "#ff9b98"),
    "unsupported": ("#8c1a22", "#fdebeb", "#ffaaa8", "#3b1718"),
    "never": ("#454d55", "#e9ecef", "#bac2ca", "#282e33"),
    "unknown": ("#55338a", "#f0eafa", "#d2b8ff", "#2a2040"),
}
_LIGHT = "--text:#1b1f24;--ground:#fff;--muted:#545d67;--line:#cfd6dd;--soft:#f4f6f8;--link:#0b4a94"
_DARK = (
    "--text:#e6eaee;--ground:#15191d;--muted:#a9b3bd;--line:#3a434c;--soft:#1f252a;--link:#9cc8ff"
)
#: Rules inside `.attn-doctor`, so that in a notebook they reach nothing else. The class stands
#: twice, so that they also come before the rules of notebooks, which float terms and align cells.
_STYLE = """
&,& *{box-sizing:border-box}
background:var(--ground);color:var(--text);overflow-wrap:anywhere;color-scheme:light dark;
font:1rem/1.55 system-ui,"Noto Sans",sans-serif;
.head,.main,.foot{max-width:68rem;margin:0 auto;padding:0 1.25rem}
.head{padding-top:1.5rem}
.foot{padding-top:.5rem;padding-bottom:2rem;color:var(--muted);font-size:.9rem}
h1,h2,h3{line-height:1.3;font-weight:600}
h1{font-size:1.6rem;margin:.2rem 0}
h2{font-size:1.25rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
h3{font-size:1.05rem;margin:0 0 .4rem}
p{margin:.4rem 0;max-width:48rem}
.muted,dt,caption{color:var(--muted)}
a{color:var(--link);text-decoration:underline}
code,pre{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:.9em;
color:inherit;background:none;padding:0;word-break:normal}
pre,pre code{white-space:pre}
pre{background:var(--soft);
border:1px solid var(--line);border-radius:.4rem;padding:.6rem .8rem;
overflow-x:auto;margin:.4rem 0;overflow-wrap:normal}
dl{margin:0}
dl div{display:grid;grid-template-columns:8rem 1fr;gap:0 1rem;padding:.25rem 0}
dt{grid-column:1;font-weight:400;float:none;width:auto;margin:0;padding:0}
dd{grid-column:2;float:none;width:auto;margin:0;padding:0}
ul{margin:.4rem 0;padding-left:1.3rem}
article{border:1px solid var(--line);border-left:.3rem solid var(--muted);border-radius:.4rem;
padding:.8rem 1rem;margin:.8rem 0}
article.error{border-left-color:var(--wrong-ground)}
article.warning{border-left-color:var(--slow)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;margin:0;table-layout:auto;font-size:.95rem;overflow-wrap:normal}
caption{text-align:left;padding:.2rem 0 .4rem}
th,td{border:1px solid var(--line);padding:.35rem .6rem;text-align:left;vertical-align:middle}
tr:nth-child(n){background:none;color:var(--text)}
thead th{background:var(--soft)}
.state{display:inline-block;border-radius:.3rem;padding:.05rem .5rem;border:1px solid var(--line)}
td.state{display:table-cell;padding:.35rem .6rem}
.badge{font-size:.85rem;font-weight:600}
.legend{display:flex;flex-wrap:wrap;gap:.4rem 1rem;list-style:none;padding:0}
ol.log{list-style:none;margin:0;padding:.4rem 0;background:var(--soft);border:1px solid var(--line);
border-radius:.4rem;overflow-x:auto;container-type:inline-size;
font:.85rem/1.5 ui-monospace,"DejaVu Sans Mono",Consolas,monospace}
ol.log li{display:flex;gap:1rem;padding:0 .8rem;white-space:pre;width:max-content;min-width:100%;
overflow-wrap:normal}
ol.log .number{color:var(--muted);min-width:4ch;text-align:right;user-select:none}
ol.log li.cause{background:var(--slow-ground);color:var(--slow)}
ol.log li.cause .number{color:inherit}
ol.log li.cause mark{background:none;color:inherit;font-weight:700}
ol.log li.left{color:var(--muted)}
.note{white-space:normal;font-family:system-ui,sans-serif;font-weight:600;
position:sticky;left:.8rem;max-width:calc(100cqw - 6rem)}
@media (min-width:60rem){td.state{white-space:nowrap}}
@media (max-width:36rem){dl div{display:block}dd{margin-bottom:.3rem}table{font-size:.78rem}
th,td,td.state{padding:.25rem .3rem}
th[scope=row]{min-width:5.2rem;max-width:7rem;overflow-wrap:anywhere}}
@media print{background:#fff;font-size:10pt;article,tr{break-inside:avoid}
pre,ol.log li{white-space:pre-wrap;width:auto}.scroll,ol.log{overflow:visible}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}a{color:inherit}}
"""
#: The parts of a page, which are landmarks, and the class of each.
_PARTS = {"header": "head", "main": "main", "footer": "foot"}


def colours(*, dark: bool) -> str:
    """The variables of the states, as a part of a style."""
    at = 2 if dark else 0
    return ";".join(
        f"--{name}:{found[at]};--{name}-ground:{found[at + 1]}" for name, found in COLOURS.items()
    )


def style(*, notebook: bool = False) -> str:
    """The style of a page. Paper is light, whatever the screen is.

    In a notebook the colours are those of its own theme, where Jupyter or VS Code states it.
    """
    light, dark = f"{_LIGHT};{colours(dark=False)};", f"{_DARK};{colours(dark=True)}"
    states = "".join(
        f".{name}{{color:var(--{name});background:var(--{name}-ground)}}" for name in COLOURS
    )
    themes = (
        f"[data-jp-theme-light=true] &,.vscode-light &{{{light}color-scheme:light}}"
        f"@media screen{{[data-jp-theme-light=false] &,.vscode-dark &{{{dark}color-scheme:dark}}}}"
    )
    return (
        "body.attn-doctor{margin:0}"
        f".attn-doctor.attn-doctor{{{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
        f"{_STYLE}{states}{themes if notebook else ''}}}"
    )


def page(command: str, verdict: Html, subject: str, main: Iterable[Html]) -> str:
    """A whole page. `verdict` is its first sentence, `subject` what was examined."""
    title = f"attn-doctor {command}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        Html(f"<style>{style()}</style>"),
    )
    note = (
        f"Written by attn-doctor {__version__}. Names of users, hosts and projects, GPU ids and"
        " tokens are replaced, in commands too."
    )
    top = (tag("h1", title), tag("p", verdict), tag("p", prose(subject), class_="muted"))
    parts = {"header": top, "main": tuple(main), "footer": (tag("p", note),)}
    body = join(tag(name, *parts[name], class_=kind) for name, kind in _PARTS.items())
    return (
        f'<!DOCTYPE html>\n<html lang="{chosen() or "en"}">\n{head}\n'
        f'<body class="attn-doctor">\n{body}\n</body>\n</html>\n'
    )


def fragment(written: str) -> str:
    """A page as a part of another one, such as a notebook, which has landmarks of its own.

    Where its style is removed, as in a notebook that is not trusted, the text is left.
    """
    body = written.partition("<body")[2].partition(">")[2].partition("</body>")[0]
    for name, kind in _PARTS.items():
        body = body.replace(f'<{name} class="{kind}">', f'<div class="{kind}">')
        body = body.replace(f"</{name}>", "</div>")
    return f'<style>{style(notebook=True)}</style><div class="attn-doctor">{body}</div>'
