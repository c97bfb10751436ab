"""The results as text: the table at the end of a run, and metrics.csv."""

from __future__ import annotations

import csv
import io

from federatedscope_ggeur.reporting.results import Results


def results_table(results: Results) -> str:
    """The table that a run prints at its end.

    One row for each domain (a star marks those that no client holds), then AVG and
    STD over domains, all in percent; then what was sent (1 MB = 10^6 bytes) and how
    long it took; then where the run broke off, if it did. A number that does not exist
    is shown as "-".
    """
    final = results.final
    shown = next((r for r in reversed(results.rounds) if r.evaluated), None)
    last = shown.accuracy if shown else {}
    rows = [
        (_marked(domain, results), last.get(domain), final.accuracy.get(domain))
        for domain in results.domains
    ]
    summary = [
        ("AVG", shown.avg if shown else None, final.avg),
        ("STD", shown.std if shown else None, final.std),
    ]
    last_title = f"round {shown.round}" if shown else "last round"
    mean_title = f"mean of last {len(final.rounds)} evaluated"
    lines = _aligned(("accuracy in %", last_title, mean_title), rows, summary)
    if results.unseen_domains:
        lines.append("* unseen: held by no client")
    lines.append(
        f"sent {final.bytes_up / 1e6:.2f} MB up, {final.bytes_down / 1e6:.2f} MB down"
        f"{' (round 0 included)' if results.round0 else ''}; {final.seconds:.1f} s"
    )
    if results.status != "finished":
        done = results.rounds[-1].round if results.rounds else 0
        lines.append(f"{results.status} after round {done}")
    return "\n".join(lines)


def metrics_csv(results: Results) -> str:
    """One row for each round, floats to the bit; empty cells where not evaluated.

    Columns: round, avg, std, loss, seconds, bytes_up, bytes_down and, for each
    domain, accuracy_<domain>. Accuracies are fractions in [0, 1].
    """
    names = ["round", "avg", "std", "loss", "seconds", "bytes_up", "bytes_down"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names + [f"accuracy_{domain}" for domain in results.domains])
    for record in results.rounds:
        scores = record.accuracy or {}
        row = [getattr(record, name) for name in names]
        writer.writerow(row + [scores.get(domain) for domain in results.domains])
    return text.getvalue()


def _marked(domain: str, results: Results) -> str:
    return f"{domain} *" if domain in results.unseen_domains else domain


def _aligned(head: tuple, rows: list, summary: list) -> list[str]:
    names = [head[0], *(row[0] for row in rows + summary)]
    widths = [max(map(len, names)), max(len(head[1]), 6), max(len(head[2]), 6)]

    def line(name, *cells):
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:]))
        return "  ".join([name.ljust(widths[0]), *right])

    def numbers(rows):
        return [line(name, *map(_percent, values)) for name, *values in rows]

    rule = "-" * (sum(widths) + 4)
    return [line(*head), rule, *numbers(rows), rule, *numbers(summary), rule]


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.2f}"
