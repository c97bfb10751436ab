"""Find settings that are wrong by themselves or that contradict each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.federation import OptimizerSettings
from federatedscope_ggeur.federation.course.checkpoint import check_place
from federatedscope_ggeur.federation.exchanges.base import (
    due_exchanges,
    own_exchanges,
    plugin_exchanges,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import TrainingKeys
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import OTHER_MODELS, build_closed_form
from federatedscope_ggeur.settings import number_problem, problems_of

from .demands import demands_of
from .fs_keys import OPEN_SECTION, section_of, settings_in, switch_of, switches
from .keys import AgreedKeys, RunKeys, get_key, read
from .method_settings import part_settings, parts_in_use


def contradictions(cfg, wrong: Collection[str]) -> Iterator[str]:
    """Yield the settings that contradict each other, each as ``"<key>: <problem>"``.

    Every part of a run states which settings it objects to. A key in `wrong` is wrong
    by itself and counts as its default.
    """
    run = demands_of(cfg, wrong)
    rooms = [*own_exchanges(), *plugin_exchanges(run)]
    parts = [run.method, run.augmentation, run.form, *rooms]
    for part in [*OTHER_MODELS.present().values(), *parts]:
        if part is not None:
            yield from problems_of(part.objections(run), run, wrong)
    yield from _method_problems(cfg)
    if run.form is not None:
        try:
            build_closed_form(run.form.name, cfg.ggeur)
        except ConfigError as error:
            yield str(error)


def _method_problems(cfg) -> Iterator[str]:
    """Yield the methods' objections to settings in FederatedScope's own sections."""
    parts, base = parts_in_use(cfg), read(cfg.ggeur, TrainingKeys).base_method
    chosen = {switch_of(part) for part in parts}
    for switch in switches():
        if switch not in chosen and switch in cfg and cfg[switch].use:
            yield (
                f"{switch}.use: must be False with ggeur.base_method: {base}, which "
                "alone selects the method"
            )
    for part in parts:
        yield from _setting_problems(cfg, part)
        for field, problem in part.optimizer_problems(local_optimizer(cfg)):
            yield f"{OPEN_SECTION}.{field}: {problem}"


def check_embedding_dim(cfg, dim: int) -> None:
    """Check the dimensions `dim` of the embeddings against ``ggeur.embedding_dim``.

    Raises
    ------
    ConfigError
        The two differ.
    """
    wanted = read(cfg.ggeur, RunKeys).embedding_dim
    if wanted not in (None, dim):
        raise ConfigError(
            f"ggeur.embedding_dim: is {wanted}, but the embeddings of data.type "
            f"{cfg.data.type} have {dim} dimensions; set it to {dim} or remove "
            "the line"
        )


def check_places(cfg, restore_from: str = "") -> None:
    """Refuse places where the run could not write, or that belong to another run.

    Parameters
    ----------
    cfg : config
    restore_from : str
        The checkpoint to continue from, if it is not ``federate.restore_from``.

    Raises
    ------
    ConfigError
    """
    restored = restore_from or cfg.federate.restore_from
    check_place(cfg.federate.save_to, restored)
    if not restored:
        demands = demands_of(cfg)
        for part in due_exchanges(demands):
            part.check_places(demands)


def given_handshake(ggeur) -> dict[str, object]:
    """The facts about the data that settings state, by fields of a `Handshake`."""
    agreed = read(ggeur, AgreedKeys)
    said = {
        "dim": read(ggeur, RunKeys).embedding_dim,
        "class_names": agreed.class_names,
        "encoder": agreed.encoder,
    }
    return {name: value for name, value in said.items() if value}


def check_number_of_clients(cfg, clients: int) -> None:
    """Check the settings again, once the data say how many clients there are.

    Raises
    ------
    ConfigError
        ``federate.client_num`` is 0, and a setting contradicts the number `clients`.
    """
    if cfg.federate.client_num:
        return
    said = cfg.clone()
    said.defrost()
    said.federate.client_num = clients
    if problems := list(contradictions(said, ())):
        raise ConfigError("; ".join(problems))


def check_agreed(cfg, class_names: Sequence[str], encoder: str) -> None:
    """Check the classes and the encoder of the data against ``ggeur.agreed``.

    Raises
    ------
    ConfigError
        The classes or the encoder differ.
    """
    agreed = read(cfg.ggeur, AgreedKeys)
    held = (
        ("class_names", list(agreed.class_names), list(class_names)),
        ("encoder", agreed.encoder, encoder),
    )
    for name, wanted, there in held:
        if wanted and wanted != there:
            lacks = name == "class_names" and set(there) < set(wanted)
            todo = "name all classes in class_names.txt in data.root, if rows lack some"
            raise ConfigError(
                f"ggeur.agreed.{name}: is {shown(wanted, 300)}, but the data of "
                f"data.type {cfg.data.type} have {shown(there, 300)}; "
                f"{todo if lacks else 'change one of the two'}"
            )


def local_optimizer(cfg) -> OptimizerSettings:
    """The settings of the local optimiser, from ``train.optimizer``."""
    node = cfg.train.optimizer
    options = {k: v for k, v in settings_in(node).items() if k not in ("type", "lr")}
    return OptimizerSettings(get_key(node, "type"), get_key(node, "lr"), options)


def _setting_problems(cfg, part: type[Method]) -> Iterator[str]:
    """Yield the problems of the settings of `part`, each as ``"<key>: <problem>"``.

    The rules of optional settings are applied first. Then `part` itself checks all its
    settings.
    """
    given = part_settings(cfg, part)
    for key in part.SETTINGS:
        if key.in_config is None and key.name in given:
            value = given[key.name]
            problem = number_problem(value) or key.rule(value)
            if problem:
                yield f"{section_of(part)}.{key.name}: {problem}"
    for name, problem in part.setting_problems(given):
        yield f"{section_of(part)}.{name}: {problem}"
