"""docs/claims.md: every claim with its verdicts, and where those are from."""

from collections import Counter
from typing import Any

from quarl_bench.judging.claim import Claim, expand
from quarl_bench.report.stored import list_outcomes

ORDER = ("supported", "refuted", "inconclusive", "undecidable", "partial")


def write_page(claims: tuple[Claim, ...], verdicts: dict[str, Any]) -> str:
    """The page "Claims and verdicts"."""
    lines = [HEAD.rstrip()]
    for paper in dict.fromkeys(claim.paper for claim in claims):
        lines += ["", f"## {paper}", ""]
        for claim in (claim for claim in claims if claim.paper == paper):
            lines += list(_describe(claim, verdicts))
    lines += ["## Judgements", "", "| judgement | what the interval is on |", "|---|---|"]
    kinds = dict.fromkeys(type(claim.judgement) for claim in claims)
    lines += [f"| `{kind.__name__}` | {kind.meaning} |" for kind in kinds]
    return "\n".join([*lines, "", tell_runs(verdicts), ""])


def tell_shortly(verdicts: dict[str, Any]) -> str:
    """When and on what the verdicts were measured, in a line."""
    runs = verdicts["runs"]
    episodes, processors = (
        " or ".join(dict.fromkeys(str(run[key][name]) for run in runs))
        for key, name in (("settings", "episodes"), ("machine", "processor"))
    )
    more = "[commits and machines](docs/findings.md#where-the-numbers-are-from)"
    return f"{_tell_dates(verdicts)}, {episodes} episodes per policy, on {processors}: {more}."


def tell_runs(verdicts: dict[str, Any]) -> str:
    """The same with every commit, setting and machine."""
    runs = verdicts["runs"]
    commits = ", ".join(dict.fromkeys(f"`{run['commit'][:12]}`" for run in runs))
    settings = dict.fromkeys(
        f"profile {run['settings']['profile']}, {run['settings']['episodes']} episodes per policy" for run in runs
    )
    machines = dict.fromkeys(_tell_machine(run["machine"]) for run in runs)
    return (
        f"{_tell_dates(verdicts)}, {' or '.join(settings)}, on {' or on '.join(machines)}. Commits: {commits}. "
        "docs/results/nightly.json.xz names the run of each verdict. "
        "What was not run had no policy, no board or no runtime there; each skip says why."
    )


def _tell_machine(machine: dict[str, Any]) -> str:
    instructions = "".join(f", {name}" for name in machine.get("instructions", ()))  # which older runs do not say
    return f"{machine['processor']} ({machine['cores']} cores{instructions}), Python {machine['python']}"


def _describe(claim: Claim, verdicts: dict[str, Any]) -> list[str]:
    schemes = ", ".join(f"`{scheme}`" for scheme in claim.schemes)
    lines = [
        f"### {claim.id}",
        "",
        f"{claim.where}: {claim.says}.",
        "",
        f"- `{claim.judgement}`; {schemes}",
        f"- {_count(claim)}: {_tell(claim, verdicts)}",
    ]
    if claim.replay:
        lines.append("- replay: it follows from the paper's own data, and counts with no measurement")
    known = [f"- `{name}` is known not to hold: {reason}" for name, reason in claim.known.items()]
    return [*lines, *known, ""]


def _count(claim: Claim) -> str:
    count = len(expand(claim))
    return f"{count} {'case' if claim.judgement.each else 'item'}{'' if count == 1 else 's'}"


def _tell(claim: Claim, verdicts: dict[str, Any]) -> str:
    found = Counter(verdict for verdict, _ in list_outcomes(verdicts).get(claim.id, {}).values())
    told = ", ".join(f"{found[name]} {name}" for name in (*ORDER, "refuted (known)") if name in found)
    open_ = len(expand(claim)) - found.total()
    return told + (f"{', ' if told else ''}{open_} not run" if open_ > 0 else "")


def _tell_dates(verdicts: dict[str, Any]) -> str:
    dates = sorted({run["date"] for run in verdicts["runs"]})
    return f"Measured {'on' if len(dates) == 1 else 'from'} {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"


HEAD = """# Claims and verdicts

<!-- Made by generate.py from the claims; edit those. -->

A claim is a statement of a paper, in our words, with a threshold. A cell is one algorithm on one environment in one
scheme. A *case* judges one cell alone, and an *item* judges a statement over many cells. Both get an interval, and the
interval decides: [what a verdict means](usage.md#what-a-verdict-means).

![Verdicts by environment, algorithm and scheme](pictures/verdicts.svg)

A2C and PPO on Atari play in two ways, argmax and sampled. A case is refuted if one of them refutes it at 2.5%, or
both at 5%. An item is refuted if either refutes it at 5%, which is wrong in up to 10%. A ratio to an fp32 return near
0 means nothing: `Gains` and `Tracks` leave such cells out and name them, and other judgements give no interval.

A claim that is known not to hold is an expected failure in pytest, with its reason; it fails when it is not refuted.
Some reasons are about one profile (`in quick`). A time or a resident memory is a processor's own: a refuted one fails,
unless it is known on that processor. On a processor of which no session is stored it is reported, and fails under
`--quarl-strict`. These reasons are about the committed policies, not about those of `--quarl-baselines`.

`ours` marks statements that the paper does not make. Figures of QuaRL are those of the preprint of 2019, but `Figure 1
(exploration)` and `Figure 2 (QAT)` are those of the ICLR text. Some claims ask more than the paper says, or elsewhere:

- `table1-trained` asks all widths of Table 1. QuaRL itself sees a drop below 5 or 6 bits.
- `table1-count` also counts `int8`, and widths of DQN that are not in Table 1.
- `table2-cell` asks single cells, also of tasks that are not in Table 2. `table2-mean` and `table2-fp16-like-8bit` ask
  DQN too, which QuaRL excepts.
- `figure2-tracks`, `spread-over-ppo` and `spread-over-a2c` ask eleven tasks. Figure 2 shows three games, Figure 3 one.
- Claims on Figure 2 (QAT) and on exploration ask classic control, those on Figure 5 the game Catch.
- `lqcc-selected` asks for 95% of fp32's return. LQCC's rule allows one SD less.
"""
