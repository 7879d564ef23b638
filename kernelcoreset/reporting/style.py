"""Colours and style of the page, light and dark. A test checks the contrast of every pair."""

from __future__ import annotations

LIGHT = {
    "page": "#ffffff",
    "panel": "#f5f7fa",
    "text": "#1b2129",
    "muted": "#55606d",
    "line": "#d5dbe3",
    "link": "#0b5cad",
    "good": "#0f6b33",
    "fair": "#855400",
    "poor": "#a8122b",
    "unknown": "#55606d",
}
"""Colours of the light scheme; all but the first two and `line` are colours of text."""
DARK = {
    "page": "#0f141a",
    "panel": "#171e26",
    "text": "#e7edf4",
    "muted": "#a3afbd",
    "line": "#323d4a",
    "link": "#74b7ff",
    "good": "#5fd38a",
    "fair": "#e8b84a",
    "poor": "#ff8b8b",
    "unknown": "#a3afbd",
}
LIGHT_CLUSTERS = (
    "#0b62a8", "#c2410c", "#0f7b55", "#a21caf", "#8a6100", "#0e7490", "#be123c", "#4d5fd1", "#4d7c0f", "#6b5b4b",
)  # fmt: skip
"""Colours of clusters; from the eleventh on they come again, and the number beside them says which."""
DARK_CLUSTERS = (
    "#58a6ff", "#ff9b5e", "#3fc796", "#e28bf0", "#e0b03c", "#45c8dc", "#ff8a9a", "#a5b0ff", "#a3d44d", "#c9b8a5",
)  # fmt: skip

_RULES = """
*{box-sizing:border-box}
html{color-scheme:light dark}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main{max-width:1040px;margin:0 auto;padding:32px 24px 48px}
header{margin-bottom:28px}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 6px}
h2{font-size:1.2rem;margin:40px 0 12px;padding-top:14px;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:20px 0 6px}
p{margin:0 0 10px;max-width:76ch}
a{color:var(--link)}
.muted,figcaption,.tick{color:var(--muted)}
.facts{display:flex;flex-wrap:wrap;gap:8px 28px;margin:16px 0 0;padding:0;list-style:none}
.facts b{display:block;font-size:1.25rem;line-height:1.3}
.lights{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:16px}
.light{background:var(--panel);border:1px solid var(--line);border-left:6px solid;border-radius:8px;padding:16px 18px}
.light h3{margin:0 0 2px;color:var(--text)}
.light .state{font-weight:700}
.light h3::before{content:"";display:inline-block;width:.85em;height:.85em;border-radius:50%;margin-right:.5em;
vertical-align:-.06em}
.good h3::before{background:var(--good)}.fair h3::before{background:var(--fair)}
.poor h3::before{background:var(--poor)}.unknown h3::before{background:var(--unknown)}
.light .muted{font-size:.9rem;margin-bottom:4px}
.good{border-left-color:var(--good)}.fair{border-left-color:var(--fair)}
.poor{border-left-color:var(--poor)}.unknown{border-left-color:var(--unknown)}
.good .state{color:var(--good)}.fair .state{color:var(--fair)}
.poor .state{color:var(--poor)}.unknown .state{color:var(--unknown)}
.wide{overflow-x:auto;margin:0 0 12px}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;padding:6px 12px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
td{overflow-wrap:anywhere}
th{font-weight:600;color:var(--muted)}
td.number:first-child,th.number:first-child{width:7em;padding-right:20px}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:20px}
figure{margin:0;max-width:620px}
.share{min-width:6.5em}
.bar{display:block;height:6px;min-width:2px;border-radius:3px;margin:4px 0 0 auto;background:var(--bar)}
figcaption{font-size:.88rem;margin-top:6px}
svg{display:block;width:100%;height:auto;background:var(--panel);border:1px solid var(--line);border-radius:8px}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--text)}
svg text.tick{fill:var(--muted)}
svg .grid{stroke:var(--line);stroke-width:1;fill:none}
svg .trend{stroke:var(--c0);stroke-width:2;fill:none}
svg .mark{font-weight:700;font-size:15px;paint-order:stroke;stroke:var(--panel);stroke-width:4px;stroke-linejoin:round}
svg .dots{fill-opacity:.6}
.chip{display:inline-block;min-width:1.9em;padding:0 .45em;border-radius:5px;border:2px solid;text-align:center;
font-weight:700;font-variant-numeric:tabular-nums}
ul.apart{min-width:25em}
ul.plain{margin:0;padding-left:1.2em}
pre{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:14px 16px;overflow-x:auto;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin:0 0 12px;white-space:pre-wrap;
overflow-wrap:anywhere}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
summary{cursor:pointer;margin:0 0 10px;color:var(--link)}
footer{margin-top:48px;padding-top:14px;border-top:1px solid var(--line);font-size:.88rem;color:var(--muted)}
@media print{
body{font-size:11pt}main{max-width:none;padding:0}
h2,h3{break-after:avoid}figure,tr,.light{break-inside:avoid}
.charts{grid-template-columns:1fr 1fr}
svg,.light,.bar,pre{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""


_CARD = """
.kc-card{background:var(--page);color:var(--text);border:1px solid var(--line);border-radius:8px;padding:12px 16px;
max-width:640px;font:14px/1.5 system-ui,sans-serif}
.kc-card p{margin:0 0 6px}
.kc-card .kc-muted{color:var(--muted)}
.kc-card ul.kc-facts{display:flex;flex-wrap:wrap;gap:4px 24px;margin:0 0 8px;padding:0;list-style:none}
.kc-card ul.kc-facts b{display:block}
.kc-card table{border-collapse:collapse;color:var(--text);background:var(--page)}
.kc-card th,.kc-card td{text-align:left;padding:3px 14px 3px 0;color:var(--text);background:var(--page)}
.kc-card .number{text-align:right}
.kc-card .kc-chip{border:2px solid;border-radius:5px;padding:0 .45em;font-weight:700}
.kc-card svg{display:block;max-width:520px;background:var(--panel)}
.kc-card svg text{font:12px system-ui,sans-serif;fill:var(--text)}
.kc-card svg text.tick{fill:var(--muted)}
.kc-card svg .grid{stroke:var(--line);fill:none}
.kc-card svg .mark{font-weight:700;font-size:15px;paint-order:stroke;stroke:var(--panel);stroke-width:4px}
.kc-card svg .dots{fill-opacity:.6}
"""


def css() -> str:
    """Return the style sheet: light by default and on paper, dark if the reader prefers it."""
    return _schemes(":root") + _RULES + _clusters("")


def card_css() -> str:
    """Return the style sheet of a card in a notebook: it changes nothing outside the card."""
    return _schemes(".kc-card") + _CARD + _clusters(".kc-card ")


def cluster_class(cluster: int) -> str:
    """Return the class that gives a cluster its colour."""
    return f"c{cluster % len(LIGHT_CLUSTERS)}"


def _schemes(where: str) -> str:
    light, dark = _variables(LIGHT, LIGHT_CLUSTERS), _variables(DARK, DARK_CLUSTERS)
    return f"{where}{{{light}}}@media screen and (prefers-color-scheme:dark){{{where}{{{dark}}}}}"


def _clusters(where: str) -> str:
    return "".join(
        f"{where}.c{place}{{fill:var(--c{place});border-color:var(--c{place});--bar:var(--c{place})}}"
        for place in range(len(LIGHT_CLUSTERS))
    )


def _variables(colors: dict[str, str], clusters: tuple[str, ...]) -> str:
    named = {**colors, **{f"c{place}": color for place, color in enumerate(clusters)}}
    return "".join(f"--{name}:{color};" for name, color in named.items())
