"""What a run says of itself at its start, on every engine alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from federatedscope_ggeur.cfg_ggeur.method_settings import base_method, run_notes
from federatedscope_ggeur.cfg_ggeur.run_encoder import other_rows_note
from federatedscope_ggeur.cfg_ggeur.run_settings import RunSettings, asks_for_statistics
from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.advice import (
    batches_note,
    is_much,
    rate_note,
    step2_note,
    withheld_note,
    withheld_text,
)
from federatedscope_ggeur.federation.holdings import (
    Holdings,
    Withheld,
    augmented_rows,
    median_rows,
    sources,
)
from federatedscope_ggeur.federation.screening import BLIND_TO_SUMS


def start_notes(
    cfg,
    settings: RunSettings,
    client_domains: Mapping[int, str],
    held: Holdings | None,
) -> list[str]:
    """What a person might expect otherwise of a run, a line each.

    Parameters
    ----------
    cfg : config
    settings : RunSettings
        Of the run.
    client_domains : mapping from client number to domain
        Of the clients that train.
    held : Holdings or None
        What these hold; None on a server that cannot know it: each client then says
        `client_notes` of its own.
    """
    notes, server = [*run_notes(cfg), other_rows_note(cfg)], settings.server
    if 2 in server.steps:
        kind = server.prototypes
        own = sources(list(client_domains.values()), kind)
        notes.append(step2_note(own, kind, base_method(cfg).pools_data))
    if settings.client.sums is not None:
        notes.append(BLIND_TO_SUMS)
    if held is not None:
        if asks_for_statistics(cfg.ggeur):
            threshold, on_sums = settings.client.min_samples, settings.client.sums
            if on_sums is None:
                notes.append(withheld_note(held.counts, threshold))
            else:
                notes.append(_summed_note(held, threshold))
        rows = set_rows(settings, held)
        notes += _training_notes(cfg, settings, held, rows)
    elif settings.client.training.batch_or_epoch == "batch":
        notes += _few_batches(
            cfg, settings, np.array([settings.client.training.batch_size])
        )
    return [note for note in notes if note]


def client_notes(cfg, settings: RunSettings, held: Holdings, rows: int) -> list[str]:
    """The same of one client by itself, whose set has so many rows."""
    notes = []
    if asks_for_statistics(cfg.ggeur) and settings.client.sums is None:
        own = Withheld.from_counts(held.counts, settings.client.min_samples)
        # Others may speak of the classes that it says nothing of.
        notes = [withheld_text(replace(own, classes=0))]
    return [*notes, *_training_notes(cfg, settings, held, np.array([rows]))]


def withheld_line(cfg, settings: RunSettings, held: Holdings) -> str:
    """What the min-count threshold keeps back; "" where no statistics are sent, or so
    much is kept back that `start_notes` says it."""
    withheld = Withheld.from_counts(held.counts, settings.client.min_samples)
    if settings.client.sums is not None:
        return ""
    quiet = not asks_for_statistics(cfg.ggeur) or is_much(withheld)
    return "" if quiet else withheld_text(withheld)


def set_rows(settings: RunSettings, held: Holdings) -> np.ndarray:
    """Rows that each client trains on, augmentation included: int array [K]."""
    client = settings.client
    threshold, kind = client.min_samples, settings.server.prototypes
    kind = kind if client.sums is None else "others"
    if not client.train_withheld:
        told = np.where(held.counts >= threshold, held.counts, 0)
        held = replace(held, counts=told)
    return augmented_rows(held, client.augmentation, threshold, kind)


def _summed_note(held: Holdings, threshold: int) -> str:
    """A note where classes have fewer rows over all clients than the threshold."""
    totals = held.counts.sum(axis=0)
    back = (totals > 0) & (totals < threshold)
    if not back.any():
        return ""
    return (
        f"{setting('min_samples')} {threshold} withholds {int(back.sum())} classes, "
        f"which have {int(totals[back].sum())} of {int(totals.sum())} rows over all "
        "clients: a head in closed form never predicts them"
    )


def _training_notes(
    cfg, settings: RunSettings, held: Holdings, rows: np.ndarray
) -> list[str]:
    notes = _few_batches(cfg, settings, rows)
    task, training = settings.client.task, settings.client.training
    model = task.model
    is_other = model.network is not None or model.text is not None
    if task.space.kind == "raw" and model.hidden == 0 and not is_other:
        median = median_rows(rows.tolist())
        batches = settings.rounds * training.batches(median)
        norm = held.mean_square_norm
        notes.append(rate_note(training, norm, task.num_classes, batches))
    return [note for note in notes if note]


def _few_batches(cfg, settings: RunSettings, rows: np.ndarray) -> list[str]:
    """A note on rounds of few mini-batches, where rounds cost messages."""
    method = base_method(cfg)
    if not settings.rounds or not method.federated or method.pools_data:
        return []
    return [batches_note(rows.tolist(), settings.client.training)]
