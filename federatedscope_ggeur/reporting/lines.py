"""What is over of a run, in lines for a person."""

from __future__ import annotations

from federatedscope_ggeur.reporting.results import Round0, RoundRecord

#: Why a run whose weights stay with the clients leaves no head.
NO_HEAD = (
    "no head.safetensors: with this base method every client keeps a model of its own"
)


def _round0_line(record: Round0) -> str:
    """What round 0 sent, in one line for a person."""
    if not record.statistics_bytes_up:
        return f"round 0: no statistics asked for; {record.seconds:.2f} s"
    up = sum(record.statistics_bytes_up.values())
    pairs = f"{record.uploaded_pairs}"
    if record.withheld_pairs is not None:
        pairs += f" of {record.uploaded_pairs + record.withheld_pairs}"
    return (
        f"round 0: statistics of {pairs} (client, class) pairs up, "
        f"{up / 1e6:.2f} MB ({up / len(record.clients) / 1e6:.2f} MB a "
        f"client); geometry down {record.geometry_bytes_down / 1e6:.2f} MB, prototypes "
        f"down {record.prototypes_bytes_down / 1e6:.2f} MB; {record.seconds:.2f} s"
    )


def _head_line(name: str, record: RoundRecord) -> str:
    """A head made in one go, in one line for a person; `name` says when."""
    score = "-" if record.avg is None else f"{100 * record.avg:.2f}%"
    details = ", ".join(
        f"{key.replace('_', ' ')} {value:.3g}"
        if isinstance(value, float)
        else f"{key.replace('_', ' ')} {value}"
        for key, value in record.details.items()
    )
    about = f" ({details})" if details else ""
    return f"{name} {record.method}: AVG {score}{about}; {record.seconds:.2f} s"


def record_lines(record: Round0 | RoundRecord) -> list[str]:
    """What is over, of round 0 or of calibration, in a line each for a person."""
    if isinstance(record, RoundRecord):
        return [_head_line("calibrated by", record)]
    lines = [_round0_line(record)]
    if record.closed_form is not None:
        lines.append(_head_line("closed form", record.closed_form))
    return lines
