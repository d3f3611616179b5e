"""The colours of pages and figures, by name: light, and dark for readers who prefer it."""

LIGHT = {
    "page": "#ffffff", "ink": "#101418", "soft": "#5a636d", "line": "#d0d5db", "band": "#f5f7f9", "grid": "#d8dce1",
    "link": "#0b5fbe", "supported": "#1a6b30", "refuted": "#b42318", "inconclusive": "#8a5a00", "partial": "#57606a",
    "undecidable": "#6b5b4b", "series-0": "#0b62c4", "series-1": "#c04a00", "series-2": "#1a7f37",
    "series-3": "#8250df", "series-4": "#9a6700", "series-5": "#bf3989",
}  # fmt: skip
DARK = {
    "page": "#12161b", "ink": "#e6e9ec", "soft": "#9aa4ae", "line": "#313a44", "band": "#1a2027", "grid": "#303943",
    "link": "#6cb0ff", "supported": "#5bc77a", "refuted": "#ff8b80", "inconclusive": "#e3b341", "partial": "#9da7b1",
    "undecidable": "#c2b19e", "series-0": "#6cb0ff", "series-1": "#ff9a5c", "series-2": "#5bc77a",
    "series-3": "#c3a0ff", "series-4": "#e3b341", "series-5": "#ff8cc6",
}  # fmt: skip
DRAWN = ("supported", "refuted", "inconclusive", "undecidable", "partial", "grid", *(f"series-{i}" for i in range(6)))


def write_variables(selector: str = ":root") -> str:
    """CSS that names the colours as variables, such as `--ink`, for both kinds of readers; printed pages are light."""
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in each.items()) for each in (LIGHT, DARK))
    return f"{selector} {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ {selector} {{ {dark} }} }}"


def follow_reader(svg: str) -> str:
    """The drawing with its light colours replaced by the variables: ink is the text's own colour."""
    for name in DRAWN:
        svg = svg.replace(LIGHT[name], f"var(--{name})")
    return svg.replace(LIGHT["ink"], "currentColor")
