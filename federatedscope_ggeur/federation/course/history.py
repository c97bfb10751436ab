"""What any engine's run leaves: its results, and the head as a file."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from safetensors.torch import save as save_safetensors
from torch import Tensor

import federatedscope_ggeur
from federatedscope_ggeur.models import Model, named_tensors
from federatedscope_ggeur.reporting import (
    SCHEMA_VERSION,
    ClientInfo,
    HeadRecord,
    Results,
    Round0,
    RoundRecord,
    summarise,
)

#: Why a run whose weights stay with the clients leaves no head.
NO_HEAD = (
    "no head.safetensors: with this base method every client keeps a model of its own"
)
_REPORTED_PACKAGES = ("torch", "numpy", "scikit-learn", "scikit-image", "safetensors")


@dataclass(frozen=True)
class Setting:
    """What a run's results say of it beside its rounds.

    Attributes
    ----------
    engine : str
    config : dict
        All settings, plain values.
    seed : int
    domains, unseen_domains : list of str
        All that are scored, seen ones first; those that no client holds.
    class_names : list of str
    encoder : str
    clients : list of ClientInfo
    """

    engine: str
    config: dict
    seed: int
    domains: list[str]
    unseen_domains: list[str]
    class_names: list[str]
    encoder: str
    clients: list[ClientInfo]

    def results(
        self,
        status: str,
        round0: Round0 | None,
        rounds: Sequence[RoundRecord],
        calibrated: HeadRecord | None = None,
    ) -> Results:
        """The results of the rounds that are over."""
        return Results(
            schema_version=SCHEMA_VERSION,
            engine=self.engine,
            status=status,
            config=self.config,
            versions=_versions(),
            seed=self.seed,
            domains=self.domains,
            unseen_domains=self.unseen_domains,
            class_names=self.class_names,
            encoder=self.encoder,
            clients=self.clients,
            round0=round0,
            rounds=list(rounds),
            calibrated=calibrated,
            final=summarise(rounds, round0, calibrated),
        )

    def head_bytes(self, model: Model, params: Tensor) -> bytes:
        """The head at weights `params` [P] as safetensors, with class names."""
        tensors = named_tensors(model, params)
        metadata = {
            "class_names": json.dumps(self.class_names),
            "encoder": self.encoder,
        }
        return save_safetensors({k: t.clone() for k, t in tensors.items()}, metadata)


def round0_line(record: Round0) -> str:
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


def head_line(name: str, record: HeadRecord) -> str:
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


def record_lines(record: Round0 | HeadRecord) -> list[str]:
    """What is over, of round 0 or of calibration, in a line each for a person."""
    if isinstance(record, HeadRecord):
        return [head_line("calibrated by", record)]
    lines = [round0_line(record)]
    if record.closed_form is not None:
        lines.append(head_line("closed form", record.closed_form))
    return lines


def has_scores(round0: Round0 | None, rounds: Sequence[RoundRecord]) -> bool:
    """Whether a round is over, or a head in closed form there."""
    return bool(rounds or (round0 and round0.closed_form))


def _versions() -> dict[str, str]:
    found = {
        "federatedscope_ggeur": federatedscope_ggeur.__version__,
        "python": platform.python_version(),
    }
    for name in _REPORTED_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
