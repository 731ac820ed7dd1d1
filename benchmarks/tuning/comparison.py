"""Tables of how engines compare, in Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.tuning.engines import offer
from benchmarks.tuning.ranking import standings
from benchmarks.tuning.running import development, read_lines
from benchmarks.tuning.studies import Results, gather


def show(fresh: Path, *, problems: Sequence[str], engines: Sequence[str], modes: Sequence[str], seeds: int) -> None:
    """Print how engines compare on problems for development."""
    chosen = [problem for problem in development() if problem.name in problems]
    lines = [line for line in read_lines(fresh) if line["engine"] in engines and line.get("seed", 0) <= seeds]
    results = gather(lines, chosen)
    names = [problem.name for problem in chosen]
    for mode in modes:
        print(f"\n{mode}\n" + "\n".join(median_rows(results, names, mode, engines=results.engines(names, mode))))
        print("\n" + "\n".join(rank_rows(results, {"all": names}, mode)))


def rank_rows(results: Results, columns: Mapping[str, Sequence[str]], mode: str) -> list[str]:
    engines = results.engines([name for names in columns.values() for name in names], mode)
    standing = {
        title: standings([results.last_regrets(name, mode, engines=engines) for name in names])
        for title, names in columns.items()
    }
    first, *others = columns
    head = [f"mean rank, {title}" for title in columns]
    rows = [["engine", head[0], "95 %", "best in", *head[1:], "studies"], ["---"] * (len(head) + 4)]
    for engine in sorted(engines, key=lambda name: standing[first][name].rank):
        own = standing[first][engine]
        spread = f"{own.low:.2f} to {own.high:.2f}"
        rest = [f"{standing[title][engine].rank:.2f}" for title in others]
        studies = sum(len(results.studies[engine, name, mode]) for name in columns[first])
        rows.append([offer(engine).title, f"{own.rank:.2f}", spread, f"{100 * own.is_best:.0f} %", *rest, str(studies)])
    return [table_row(row) for row in rows]


def median_rows(results: Results, names: Sequence[str], mode: str, *, engines: Sequence[str]) -> list[str]:
    rows = [["problem", *(offer(engine).title for engine in engines)], ["---"] * (len(engines) + 1)]
    for name in names:
        medians = [float(np.median(each)) for each in results.last_regrets(name, mode, engines=engines).values()]
        least = min(medians, default=0.0)
        rows.append([name, *(f"**{each:.2g}**" if each == least else f"{each:.2g}" for each in medians)])
    return [table_row(row) for row in rows]


def table_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
