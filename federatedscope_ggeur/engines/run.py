"""Finds the place of a distributed run's checkpoints, and how to continue.

Runs one config on the embedded engine, up to its results.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from shlex import quote

import numpy as np

from federatedscope_ggeur import reporting
from federatedscope_ggeur.cfg_ggeur import run_settings
from federatedscope_ggeur.cfg_ggeur.check import (
    check_agreed,
    check_embedding_dim,
    check_number_of_clients,
    check_places,
)
from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.keys import AgreedKeys, RunKeys, read
from federatedscope_ggeur.cfg_ggeur.load import (
    default_config,
    idle_notes,
    load_config,
    to_plain,
)
from federatedscope_ggeur.cfg_ggeur.method_settings import base_method, options_of
from federatedscope_ggeur.cfg_ggeur.start_notes import (
    batched_because,
    privacy_of,
    set_rows,
    start_notes,
    withheld_line,
)
from federatedscope_ggeur.cfg_ggeur.transform import prepared, row_transform
from federatedscope_ggeur.data import (
    DataSet,
    FederatedData,
    centralise,
    find_reader,
    fingerprint,
    held_lazily,
    is_image_type,
    load_data,
    partition,
    pool_hash,
    sizes_of,
    transform_data,
    validation_share,
)
from federatedscope_ggeur.errors import ConfigError, DataError, setting
from federatedscope_ggeur.federation.course import checkpoint
from federatedscope_ggeur.federation.course.client_handler import ClientStore
from federatedscope_ggeur.federation.exchanges.base import due_exchanges
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EvaluationKeys
from federatedscope_ggeur.federation.exchanges.space import SpaceKeys
from federatedscope_ggeur.federation.holdings import Holdings
from federatedscope_ggeur.federation.server import unseen_clients
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.machine import plain_torch, torch_threads, usable_cores
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting.run_files import CHECKPOINT_FILE
from federatedscope_ggeur.settings import flatten, kind_of

from .embedded import EmbeddedEngine
from .workers import known_of_rows, settings_for, workers_problem

logger = get_logger(__name__)

#: What stands before the command that continues a run, by the run's status.
TO_GO_ON = {"interrupted": "to go on", "failed": "to go on once the cause is mended"}
_RESTORE = "federate.restore_from"
#: The program that started this process; empty if Python ran FS's main.
_started_by: list[str] = []
#: The folder in which it was started; empty if that is the present one.
_started_in: list[str] = []


def checkpoint_place(folder: Path, settings: run_settings.RunSettings) -> str:
    """The path of this process's checkpoints; "" if it writes none.

    It is ``federate.save_to`` or else a file in the run's folder.
    """
    if settings.save_to or settings.checkpoint_every is None:
        return settings.save_to
    # Without FS's main there may be no folder.
    return str(folder / CHECKPOINT_FILE) if folder.is_dir() else ""


def server_checkpoints(
    folder: Path,
    settings: run_settings.RunSettings,
    handshake: Handshake,
    progress: checkpoint.FinishedPart | None,
) -> checkpoint.Checkpointing | None:
    """Make the object that writes the server's checkpoints; None if it writes none.

    If a method keeps state on clients, they write it after every round. The server then
    also writes its checkpoint after every round, because the two must match.
    """
    place = checkpoint_place(folder, settings)
    if not place:
        return None
    if not settings.save_to and Path(place).exists():
        logger.warning(
            "no checkpoints are written, because '%s' exists from an earlier run", place
        )
        return None
    writer = checkpoint.CheckpointWriter(place, handshake, progress)
    stateful = settings.role.clients_keep_state
    seconds = settings.checkpoint_every or 0.0
    if settings.save_to or stateful:
        seconds = 0.0
    return checkpoint.Checkpointing(writer, seconds, asked=bool(settings.save_to))


def check_client_place(cfg, number: int) -> None:
    """Refuse to overwrite a client's saved state if it belongs to another run.

    Raises
    ------
    ConfigError
    """
    save_to = cfg.federate.save_to
    if save_to and save_to != cfg.federate.restore_from:
        path = ClientStore(save_to, number).path
        if path.exists():
            raise checkpoint.taken(path, f"the state of client {number} in another run")


def note_start(command: Sequence[str]) -> None:
    """Remember the program that started this process, and the present folder."""
    _started_by[:], _started_in[:] = command, [os.getcwd()]


def command_to_go_on(path: str | Path) -> str:
    """The command line that continues this process from the checkpoint at `path`."""
    program, *kept = sys.argv
    while _RESTORE in kept:
        first = kept.index(_RESTORE)
        del kept[first : first + 2]
    command = [*(_started_by or ["python", program]), *kept, _RESTORE, str(path)]
    return from_any_folder(command, *_started_in)


def from_any_folder(command: Sequence[str], folder: str | None = None) -> str:
    """A shell's line that runs the command in `folder`, by default the present one."""
    return f"cd {quote(folder or os.getcwd())} && {' '.join(map(quote, command))}"


def take_sigterm() -> Callable[[], object]:
    """Make SIGTERM end this process like Ctrl-C, so that its files are written.

    This does nothing if SIGTERM has a handler already. It returns a function that
    restores the earlier state.
    """
    free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not free or threading.current_thread() is not threading.main_thread():
        return lambda: None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return partial(signal.signal, signal.SIGTERM, signal.SIG_DFL)


#: Rows of clients' sets, times rounds, from which several workers pay. One takes some
#: seconds for them; to begin the others takes tenths of one.
PAYING_ROWS = 1_000_000

#: Settings that a dict need not hold if data come with it.
_WITH_DATA = {
    "federate.method": "ggeur",
    "ggeur.use": True,
    "data.type": "embeddings@ggeur",
}

#: Called with the records of round 0, of each round, and of calibration.
Watch = Callable[["reporting.Round0 | reporting.RoundRecord"], object]


class Run:
    """A run that can be followed round by round; results can be read at any time.

    Parameters
    ----------
    cfg : CfgNode
        From `load_config`.
    data : FederatedData, optional
        The data to use in place of those that `cfg.data` names.
    notes : sequence of str
        Notes that the caller has; they come first.
    restore_from : path, optional
        The checkpoint to continue from, in place of ``federate.restore_from``.
    capture : Capture, optional
        Measures the run. By default a new one starts now.

    Attributes
    ----------
    history : History
        The records of the run so far, its results, and its model.
    held : Holdings
        The rows of the clients that train.
    notes : list of str
        Notes on things that may surprise the user.

    Raises
    ------
    ConfigError, DataError
        The data cannot be read or divided as the config says.
    """

    @plain_torch()
    def __init__(
        self,
        cfg,
        data: FederatedData | None = None,
        notes: Sequence[str] = (),
        restore_from: Path | None = None,
        capture: reporting.Capture | None = None,
    ):
        self.cfg, capture = cfg, capture or reporting.Capture()
        check_places(cfg, str(restore_from or ""))
        if data is not None:
            if not isinstance(data, FederatedData):
                raise DataError(
                    "data: must be FederatedData, which FederatedData.from_arrays "
                    f"makes; got {kind_of(data)}"
                )
            with torch_threads(read(cfg.ggeur, RunKeys).num_threads):
                data = transform_data(data, row_transform(cfg))
            data = data.without(read(cfg.ggeur, EvaluationKeys).unseen_domains)
        self.data = load_federated_data(cfg) if data is None else _pooled(cfg, data)
        check_embedding_dim(cfg, self.data.dim)
        self.prepared = prepared(
            cfg,
            self.data.class_names,
            self.data.dim,
            self.data.identity,
            self.data.encoder,
        )
        clients = len(self.data.clients)
        check_number_of_clients(cfg, clients)
        self.settings = settings_for(cfg, self.data, clients, self.prepared)
        if restore_from is not None:
            self.settings = replace(self.settings, restore_from=str(restore_from))
        if self.data.is_weighted:
            self.settings = _weighted(self.settings, self.prepared)
        held = Holdings.of(self.data.clients, self.data.num_classes)
        unseen = unseen_clients(held.numbers, self.settings.role)
        self.held = held.among(set(held.numbers).difference(unseen))
        domains = dict(zip(self.held.numbers, self.held.domains))
        validates = any(s == "val" and len(rows) for s, rows in self.data.all_rows())
        about_start = start_notes(cfg, self.settings, domains, self.held, validates)
        self.notes = [*notes, *about_start]
        is_noisy = self.settings.demands.noisy
        # With noise, nothing exact of the rows is said or kept.
        self._faults = [] if is_noisy else self.data.faults()
        notes = [*self._faults, *self.notes]
        begun = _begun(cfg, self.data, is_noisy, notes)
        if not is_noisy:
            found = fingerprint(self.data)
            capture.data = reporting.DataFingerprint(*found, self.data.pool)
        capture.gpu = run_settings.gpu_name(self.settings.role.training.device)
        workers = self.settings.workers or 1
        if workers > 1 and (problem := self._workers_problem):
            raise ConfigError(f"{setting('workers')} {workers}: {problem}")
        self.engine = EmbeddedEngine(
            self.data, self.settings, begun, self.prepared, capture, workers
        )
        self.history = self.engine.history

    def use_cores(self) -> None:
        """Use several workers if this is faster and no number was set."""
        rows = set_rows(self.settings, self.held) * self.settings.rounds
        pays = rows.sum() > PAYING_ROWS or self.data.image_shape is not None
        pays = pays and not self._at_once[0]
        if not self.settings.workers and pays and not self._workers_problem:
            self.engine.workers = usable_cores()

    @cached_property
    def _at_once(self) -> tuple[bool, str]:
        """Whether clients train at once; if not, why. It takes a model to know."""
        return batched_because(self.settings)

    @property
    def _workers_problem(self) -> str:
        settings = self.settings
        return workers_problem(settings.role.training.device, settings.num_threads)

    def describe(self) -> list[str]:
        """Lines that describe the run: data, and rows of domains and clients."""
        data, cfg = self.data, self.cfg
        lines = [
            f"data: {cfg.data.type}, {data.num_classes} classes, {data.dim} "
            f"dimensions, encoder {data.encoder}"
        ]
        lines += self._training_lines()
        is_noisy = self.settings.demands.noisy
        lines += (
            _pooled_lines(data)
            if data.is_centralised
            else _domain_lines(data, says_rows=not is_noisy)
        )
        lines += [
            f"domain {domain.name}: unseen, {len(domain.test)} rows to test"
            for domain in data.unseen
        ]
        if self.settings.rounds:
            other = self.settings.role.task.model.other
            space = f"space of training: {self.settings.demands.of(SpaceKeys).space}"
            lines.append((other is not None and other.told) or space)
        if withheld := withheld_line(self.settings, self.held):
            lines.append(withheld)
        notes = [*idle_notes(cfg), *self.notes]
        return lines + [f"note: {note}" for note in notes]

    def _training_lines(self) -> list[str]:
        """On which device clients train, and whether all of a round train at once."""
        device = self.settings.role.training.device
        at_once, why = self._at_once
        is_usual = device.type == "cpu" and not at_once and not why
        if is_usual or not self.settings.rounds:
            return []
        if at_once:
            return [f"training on {device}, all clients of a round at once"]
        one_by_one = f", one client after the other: {why}" if why else ""
        return [f"training on {device}{one_by_one}"]

    @plain_torch()
    def follow(self, watch: Watch) -> reporting.Results:
        """Run to the end, and call `watch` with each record.

        Records are those of round 0, of each round, and of the calibrated head.
        """
        for note in [*run_settings.device_notes(self.cfg), *self._faults]:
            logger.warning(note)
        for record in self.engine.run():
            watch(record)
        return self.history.results()


@plain_torch()
def run(
    config: str | Path | Mapping,
    data: FederatedData | None = None,
    *,
    overrides: Sequence | Mapping = (),
    on_round: Watch | None = None,
) -> reporting.Results:
    """Run an experiment to its end, without printing or writing anything.

    Parameters
    ----------
    config, overrides
        As for `load_config`: a file, a bundled example, a dict or a config; and
        settings that override it.
    data : FederatedData, optional
        The data to use in place of those that the config names. A dict then need not
        hold ``federate.method``, ``ggeur.use`` and ``data.type``.
    on_round : callable, optional
        Called with each record as soon as it is known: the `Round0`, then a
        `RoundRecord` for every round. A calibrated head has one more, which names its
        `method`. An error raised by the callable ends the run.

    Returns
    -------
    Results
        The results, with the trained model; see `Results.predict`.

    Raises
    ------
    ConfigError, DataError
        Settings are wrong, or data cannot be read or divided as the config says.
    """
    if data is not None and isinstance(config, Mapping):
        config = {**_WITH_DATA, **dict(flatten(config))}
    cfg = load_config(config, overrides)
    # `Run` refuses other kinds of data.
    notes = unused_notes(cfg, data) if isinstance(data, FederatedData) else []
    return Run(cfg, data, notes).follow(on_round or (lambda record: None))


def unused_notes(cfg, data: FederatedData, is_divided: bool = True) -> list[str]:
    """Notes on settings without effect, where `data` stand for those of the config.

    `is_divided` says whether the caller divided them, and not the config.
    """
    default, notes = default_config().data, []
    unused = ["data.root"] if cfg.data.root != default.root else []
    if cfg.data.type not in (default.type, _WITH_DATA["data.type"]):
        unused.append("data.type")
    if unused:
        names = ", ".join(unused)
        notes += [f"the data were handed in, so these have no effect: {names}"]
    if not is_divided:
        return notes
    unused = ["data.splitter"] if cfg.data.splitter else []
    if cfg.federate.client_num not in (0, len(data.clients)):
        unused.append(setting("client_num"))
    own = list(cfg.data.splits) != list(default.splits)
    if own and validation_share(cfg.data.splits) and not any(data.rows("val").values()):
        unused.append("data.splits")
    if unused:
        names = ", ".join(unused)
        notes += [f"the data came divided, so these have no effect: {names}"]
    return notes


def load_federated_data(cfg) -> FederatedData:
    """Load the data set that `cfg.data` names, and divide it among clients."""
    return divide(cfg, load_data_set(cfg))


def load_data_set(cfg) -> DataSet:
    """Load the data set that `cfg.data` names, with images as cached embeddings.

    Raises
    ------
    ConfigError, DataError
        The errors of `load_data`, or a dimension other than ``ggeur.embedding_dim``.
    """
    with torch_threads(read(cfg.ggeur, RunKeys).num_threads):
        dataset = load_data(*what_to_load(cfg))
    agreed = read(cfg.ggeur, AgreedKeys).class_names
    # Folders of images have names; labels of embeddings may be positions in a list.
    if is_image_type(cfg.data.type) and set(dataset.class_names) <= set(agreed):
        dataset = dataset.among(agreed)
    check_embedding_dim(cfg, dataset.dim)
    check_agreed(cfg, dataset.class_names, dataset.encoder)
    return dataset


def what_to_load(cfg) -> tuple:
    """The arguments of `load_data`, equal for two configs with the same data set."""
    data_type, root, encoding, own = what_to_embed(cfg)
    splits, transform = list(cfg.data.splits), row_transform(cfg)
    by_row = demands_of(cfg).noisy
    return data_type, root, splits, cfg.seed, encoding, own, transform, by_row


def what_to_embed(cfg) -> tuple:
    """The arguments of `embed_data` and `find_pending`."""
    data, own = cfg.data, options_of(find_reader(cfg.data.type), cfg.ggeur)
    auto = run_settings.encoder_device(cfg)
    return data.type, data.root, run_settings.encoding_settings(cfg.ggeur, auto), own


def divide(cfg, dataset: DataSet) -> FederatedData:
    """Divide `dataset` among clients as `cfg` says."""
    client_num, splitter = cfg.federate.client_num, cfg.data.splitter
    unseen = read(cfg.ggeur, EvaluationKeys).unseen_domains
    if run_settings.divides_by_domain(cfg):
        names = {domain.name for domain in dataset.domains}
        client_num, splitter = len(names - set(unseen)), "iid"
    with torch_threads(read(cfg.ggeur, RunKeys).num_threads):
        data = partition(
            dataset,
            client_num=client_num,
            splitter=splitter,
            splitter_args=cfg.data.splitter_args,
            seed=cfg.seed,
            unseen_domains=unseen,
            validation=run_settings.held_for_validation(cfg),
        )
        data = _pooled(cfg, data)
        # If the splits leave rows out, the seed decides which ones are in the data set.
        uses_all = sum(cfg.data.splits) > 1 - 1e-9
        return replace(data, pool=pool_hash(dataset) if uses_all else None)


def _weighted(
    settings: run_settings.RunSettings, prepared: Prepared | None
) -> run_settings.RunSettings:
    """The settings of a run on rows with weights.

    Raises
    ------
    ConfigError
        A part of the run knows no weights.
    """
    demands, form = settings.demands, settings.role.task.statistics
    wrong = [one.name for one in due_exchanges(demands) if not one.TAKES_WEIGHTS]
    head = demands.form
    if head is not None and not head.takes_weights:
        wrong.insert(0, f"{setting('closed_form')} {head.name}")
    wrong += [step.asked_by for step in form.steps if not step.TAKES_WEIGHTS]
    if prepared is not None:
        wrong.append("what is made of the names of classes")
    if wrong:
        known = [name for name, one in CLOSED_FORMS.items() if one.takes_weights]
        raise ConfigError(
            f"weights of rows: only {setting('closed_form')} {', '.join(known)} take "
            f"them, without training; these parts of the run do not: {', '.join(wrong)}"
        )
    task = replace(settings.role.task, statistics=replace(form, weighted=True))
    return replace(settings, role=replace(settings.role, task=task))


def _pooled(cfg, data: FederatedData) -> FederatedData:
    """The data for the base method: divided, or pooled in one place."""
    return centralise(data) if base_method(cfg).pools_data else data


def pooled_rows(data: FederatedData) -> reporting.PooledRows | None:
    """The training and validation rows that clients would have to send to one place.

    None if rows stay with the clients.
    """
    if not data.is_centralised:
        return None
    train, val = (list(data.rows(split).values()) for split in ("train", "val"))
    held = [(rows.features, rows.labels) for rows in [*train, *val]]
    sent = sum(x.numel() * x.element_size() for pair in held for x in pair)
    return reporting.PooledRows(data.pooled_clients, sum(len(y) for _, y in held), sent)


def _pooled_lines(data: FederatedData) -> list[str]:
    rows = len(data.clients[0].train)
    lines = [f"all domains' rows in one place: 1 client, {rows} rows to train on"]
    val, tests = data.rows("val"), data.test_sets()
    for domain in data.domains:
        rows = _row_counts(0, len(val[domain]), len(tests[domain]))
        lines.append(f"domain {domain}: {rows}")
    return lines


def _domain_lines(data: FederatedData, says_rows: bool) -> list[str]:
    clients = [client.domain for client in held_lazily(data.clients)]
    held = np.array(
        [sizes_of(data.clients, split) for split in ("train", "val", "test")]
    )
    totals = {domain: [0, 0, 0, 0] for domain in data.domains}
    for domain, rows in zip(clients, held.T.tolist()):
        totals[domain] = [a + b for a, b in zip(totals[domain], (1, *rows))]
    return [
        f"domain {domain}: {n} client{'s' if n > 1 else ''}"
        + (f", {_row_counts(*rows)}" if says_rows else "")
        for domain, (n, *rows) in totals.items()
    ]


def _row_counts(train: int, val: int, test: int) -> str:
    """A text with the rows of each split; splits without rows are left out."""
    counts = [(train, "to train on"), (val, "for validation"), (test, "to test")]
    shown = [(n, use) for n, use in counts if n or use == "to test"]
    first, *others = shown
    return ", ".join([f"{first[0]} rows {first[1]}", *(f"{n} {u}" for n, u in others)])


def _begun(
    cfg, data: FederatedData, is_noisy: bool, notes: list[str]
) -> reporting.Results:
    unseen = [domain.name for domain in data.unseen]
    return reporting.Results.begun(
        notes=notes,
        privacy=privacy_of(cfg),
        pooled=pooled_rows(data),
        engine="embedded",
        config=to_plain(cfg),
        seed=cfg.seed,
        domains=[*data.domains, *unseen],
        unseen_domains=unseen,
        clients=_client_infos(data, is_noisy),
        **known_of_rows(cfg, data),
    )


def _client_infos(data: FederatedData, is_noisy: bool) -> list[reporting.ClientInfo]:
    held, splits = held_lazily(data.clients), ("train", "test", "val")
    if is_noisy:  # exact numbers of rows stay out of results
        return [reporting.ClientInfo(c.number, c.domain, None, None) for c in held]
    rows = [sizes_of(data.clients, split).tolist() for split in splits]
    return [
        reporting.ClientInfo(c.number, c.domain, *each) for c, *each in zip(held, *rows)
    ]
