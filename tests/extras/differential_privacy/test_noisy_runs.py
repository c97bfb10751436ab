"""Whole runs under differential privacy, embedded: what goes up, and what is left.

What a client releases, and how often, is said by
test_release_side.py.
"""

import json
import re

import numpy as np
import pytest
import torch
from outcomes import backwards, overheard
from test_release_side import CLIENT, DP, SUMS

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import Run, load_federated_data, run
from federatedscope_ggeur.errors import ConfigError, DataError, MessageError
from federatedscope_ggeur.extras.differential_privacy import exchange
from federatedscope_ggeur.extras.differential_privacy.noise import NoiseSettings
from federatedscope_ggeur.extras.differential_privacy.uploads import ReleaseVector
from federatedscope_ggeur.federation.exchanges.base import all_kinds, answered_kinds
from federatedscope_ggeur.predictor import Predictor
from federatedscope_ggeur.reporting import numbers, privacy_line

SERVER = ["ggeur.privacy.dp.noise", "server"]
MODES = {"distributed": SUMS, "server": SERVER, "client": CLIENT}
SEED = ["ggeur.privacy.dp.test_seed", 3]
SQUARE = ["ggeur.privacy.dp.rows_per_class", 100]

#: Every value that a client sends, and what it is: of the release, or no data at all.
RELEASED = {
    "release_moments": {"values": "release"},
    "release_spread": {"values": "release"},
    "sum_moments": {"masked": "release"},
    "sum_spread": {"masked": "release"},
    "sum_keys": {
        "mask_key": "random",
        "commitment": "constant",
        "signature": "of random and constant values",
    },
}
PUBLIC = {"client", "stage", "session"}


def fields_of(data):
    """The names of all values in a message."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    own = json.loads(header.pop("__metadata__")["ggeur"])
    assert own.keys() == {"kind", "version", "numbers"}
    return {*header, *own["numbers"]}


@pytest.mark.parametrize("mode", MODES)
def test_a_run_of_each_kind_of_noise(config, mode):
    going = Run(config(*DP, *MODES[mode], *SQUARE))
    results, sent = overheard(going)
    noise = results.round0.noise
    assert (noise.clients, noise.square, noise.private) == (3, True, True)
    assert noise.mu == pytest.approx(0.92493, abs=1e-5)
    assert results.privacy.dp.epsilon == 4
    assert results.privacy.guarantee == "statistics"
    assert 4 < results.privacy.dp.epsilon_replaced < 8.5
    worst = {
        "distributed": "the server and 1 clients",
        "server": "everyone but the server",
        "client": "everyone",
    }[mode]
    assert noise.epsilon_against[worst] == pytest.approx(4, abs=1e-6)
    assert results.round0.closed_form.avg is not None
    assert results.round0.closed_form.details["not_calibrated"]
    assert "epsilon 4" in privacy_line(results.privacy)
    for kind, _, _, up in sent:
        assert fields_of(up[0]) <= PUBLIC | RELEASED[kind].keys(), kind
    # Of all kinds of request that there are, a client answers these alone.
    names = {kind.name for kind in answered_kinds(going.settings.demands)}
    wanted = {"release_moments", "release_spread"}
    if mode == "distributed":
        wanted = {"sum_keys", "sum_moments", "sum_spread"}
    assert names == wanted
    handler = going.engine._handlers[1]
    for kind in all_kinds():
        if kind.name not in names:
            with pytest.raises(MessageError, match="settings do not allow"):
                handler.answer(kind, [b""] * len(kind.parts))


def test_too_few_honest_clients_are_found_once_the_data_give_their_number(
    embeddings_folder, tmp_path, ggeur
):
    words = ["data.root", embeddings_folder, "ggeur.embedding_dim", 16]
    words += ["outdir", tmp_path / "exp", "ggeur.privacy.dp.tolerated", 2]
    config = "ggeur_own_embeddings_dp.yaml"
    error = ggeur("--quiet", "--cfg", config, *words, status=1).err
    assert "error: ggeur.privacy.dp.tolerated: lets 2 of 3 clients collude" in error


def test_without_noise_nothing_of_a_release_is_answered(config):
    plain = {kind.name for kind in answered_kinds(Run(config()).settings.demands)}
    assert not plain & RELEASED.keys()


def test_scores_go_up_only_if_that_is_asked_for(config):
    own = [*DP, *CLIENT, "federate.make_global_eval", False]
    silent, sent = overheard(Run(config(*own)))
    assert silent.round0.closed_form.avg is None
    assert {kind for kind, *_ in sent} == {"release_moments", "release_spread"}
    told, sent = overheard(Run(config(*own, "ggeur.privacy.dp.report_scores", True)))
    assert told.round0.closed_form.avg is not None
    assert "evaluate" in {kind for kind, *_ in sent}
    assert "not covered" in privacy_line(told.privacy)
    assert all(client.train_rows is None for client in silent.clients)
    assert silent.round0.uploaded_pairs == 0
    assert silent.provenance.data is None
    assert not [n for n in silent.notes if "rows" in n or "withh" in n]


def test_a_run_folder_holds_no_exact_number_of_rows(
    quickstart, embeddings_folder, tmp_path
):
    """Logs lie in it, too. All rows are of one class, which is not said either."""
    for path in embeddings_folder.glob("[aps]*.npz"):
        held = dict(np.load(path))
        held["labels"][:] = 3
        np.savez(path, **held)
    names = [str(c) for c in range(12)]
    (embeddings_folder / "class_names.txt").write_text("\n".join(names))
    words = [*DP[:6], *CLIENT, "data.type", "embeddings@ggeur"]
    words += ["data.root", embeddings_folder, "outdir", tmp_path / "exp"]
    words += ["federate.save_to", tmp_path / "exp" / "saved", "federate.client_num", 3]
    words += ["ggeur.agreed.class_names", names]
    assert main(["--cfg", str(quickstart), *map(str, words)]) == 0
    files = [path for path in (tmp_path / "exp").rglob("*") if path.is_file()]
    assert {"log.txt", "results.json"} <= {path.name for path in files}
    data = load_federated_data(load_config(quickstart, [str(word) for word in words]))
    exact = {len(rows) for c in data.clients for rows in (c.train, c.test)}
    for path in files:
        text = path.read_bytes().decode(errors="ignore")
        found = re.findall(r"(?<![\w.:,-])\d{2,3}(?= rows)", text)
        assert not exact & set(map(int, found)), path
        assert "one class" not in text


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_only_a_test_seed_repeats_the_noise_in_any_order(config, mode):
    settings = [*DP, *MODES[mode], "federate.client_num", 4]
    one = run(config(*settings, *SEED))
    going = Run(config(*settings, *SEED, "ggeur.round0_window", 1))
    going.engine.order = backwards
    other = going.follow(lambda record: None)
    assert numbers(one)["round0"] == numbers(other)["round0"]
    assert not one.round0.noise.private
    assert one.privacy.guarantee == "none"
    assert "not private" in privacy_line(one.privacy)
    fresh, again = (run(config(*settings)).model for _ in range(2))
    weights = [m.classifier.weight for m in (one.model, other.model, fresh, again)]
    assert torch.equal(*weights[:2])
    assert not torch.equal(*weights[2:])


@pytest.mark.parametrize("mode", MODES)
def test_a_release_is_the_rows_and_the_planned_noise_to_the_bit(config, mode):
    """So a row is as hard to find in it as in the plan alone, which is attacked in
    tests/extras/audit/test_suite.py."""
    going = Run(config(*DP, *MODES[mode], *SQUARE, *SEED))
    _, sent = overheard(going)
    noise = going.settings.role.of(NoiseSettings)
    plan, clients = noise.plan_of(3), going.engine.clients
    found = going.engine.coordinator.find(exchange.NoisyReleaseExchange).released

    def drawn(who, stage):
        return plan.noise(stage, noise.words(who, stage))

    def vector(k, stage):
        """What client k adds to the release."""
        rows = clients[k].features, clients[k].labels
        exact = (
            plan.moments(*rows)
            if stage == "moments"
            else plan.spread(*rows, found.centre)
        )
        return exact if mode == "server" else exact + drawn(k, stage)

    def total(stage):
        whole = sum(vector(k, stage) for k in clients)
        return whole + drawn("server", stage) if mode == "server" else whole

    counts, centre = plan.centre(total("moments"))
    wanted = plan.released(counts, centre, total("spread"))
    for name in ("counts", "centre", "sums", "square"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    for kind, k, _, up in sent:
        if mode != "distributed":
            own = ReleaseVector.from_bytes(up[0], None, f"client {k}").values
            assert own.tolist() == vector(k, kind.removeprefix("release_")).tolist()


@pytest.mark.parametrize(("kept", "dim"), [(5, 5), (256, 16)])
def test_a_projection_is_part_of_the_head_and_of_its_folder(
    embeddings_folder, tmp_path, quickstart, kept, dim
):
    words = [*DP, *SERVER, *SEED, "ggeur.privacy.dp.project", kept]
    words += ["data.type", "embeddings@ggeur", "data.root", embeddings_folder]
    words = [str(word) for word in [*words, "outdir", tmp_path / "exp"]]
    results = run(load_config(quickstart, words))
    assert results.round0.noise.dim == results.model.in_features == dim
    assert main(["--cfg", str(quickstart), *words]) == 0
    (left,) = (path.parent for path in (tmp_path / "exp").rglob("results.json"))
    rows = np.random.default_rng(0).normal(size=(7, 16)).astype("float32")
    assert results.prepare(torch.from_numpy(rows)).shape == (7, dim)
    predictor = Predictor(left)
    assert np.array_equal(predictor.predict_proba(rows), results.predict_proba(rows))
    for one in (results, Predictor(left), predictor):
        with pytest.raises(DataError, match="takes rows of 16 columns, not 20"):
            one.predict_proba(np.zeros((3, 20)))


def test_given_rows_are_projected(config):
    rows = np.random.default_rng(0).normal(size=(30, 16)).astype("float32")
    data = FederatedData.from_arrays(rows, np.arange(30) % 3, np.arange(30) % 5)
    cfg = config(*DP, *SERVER, "ggeur.privacy.dp.project", 5)
    made = Run(cfg, data)
    assert made.data.dim == 5
    assert made.history.results().given["unit_length"] is None  # exact, so not told


@pytest.mark.parametrize("shift", [0, 1])
def test_a_row_more_moves_no_other_row(config, embeddings_folder, tmp_path, shift):
    """So epsilon holds for files that `data.splits` divides, too."""
    held = dict(np.load(embeddings_folder / "art.npz"))
    trained = []
    for rows in (slice(None), slice(shift, len(held["labels"]) - 1 + shift)):
        folder = tmp_path / str(len(trained))
        folder.mkdir()
        np.savez(folder / "art.npz", **{n: v[rows] for n, v in held.items()})
        own = ["data.root", folder, "federate.client_num", 1, "data.splitter", "iid"]
        own += ["data.splitter_args", []]
        data = load_federated_data(config(*DP, *CLIENT, *own))
        (client,) = data.clients
        trained.append({row.numpy().tobytes() for row in client.train.features})
    assert len(trained[0] ^ trained[1]) <= 1
    with pytest.raises(ConfigError, match="second number must be 0"):
        load_federated_data(config(*DP, *CLIENT, "data.splits", [0.6, 0.1, 0.3]))


def test_a_list_of_classes_that_may_come_with_the_data_is_said(config):
    said = "epsilon does not cover the list of classes"
    assert any(said in note for note in Run(config(*DP, *CLIENT)).notes)
    names = ["ggeur.agreed.class_names", [str(c) for c in range(12)]]
    assert not any(said in note for note in Run(config(*DP, *CLIENT, *names)).notes)
    with pytest.raises(ConfigError, match=r"agreed\.class_names"):
        Run(config(*DP, *CLIENT, names[0], [str(c) for c in range(13)]))


def public_file(tmp_path, embeddings_folder, rows=12):
    held = np.load(embeddings_folder / "art.npz")
    path = tmp_path / "public.npz"
    np.savez(path, features=held["features"][:rows], labels=held["labels"][:rows])
    return ["ggeur.privacy.dp.prior", path]


@pytest.mark.slow
def test_public_rows_and_text_help(config, tmp_path, embeddings_folder):
    """Text is projected as the embeddings are."""
    noise = [*DP, *CLIENT, *SEED, "ggeur.privacy.dp.epsilon", 0.1]
    text = ["ggeur.text.prior", 4]
    for prior, said in (
        (public_file(tmp_path, embeddings_folder), "public rows"),
        (text, "text"),
        ([*text, "ggeur.privacy.dp.project", 12], "text"),
    ):
        helped = run(config(*noise, *prior)).round0.closed_form
        plain = run(config(*noise, *prior[2:])).round0.closed_form
        assert helped.avg > plain.avg + 0.1
        assert helped.details["prior"] == said
        assert (helped.details.get("text_bridge", 0) > 0) == (said == "text")


def test_public_rows_that_lack_a_class_are_refused_before_anything_is_spent(
    config, tmp_path, embeddings_folder
):
    prior = public_file(tmp_path, embeddings_folder, rows=11)
    with pytest.raises(DataError, match="no row of class '11'"):
        Run(config(*DP, *CLIENT, *prior))
    with pytest.raises(DataError, match="there is no file"):
        Run(config(*DP, *CLIENT, "ggeur.privacy.dp.prior", "nowhere.npz"))


# What a run with noise says of its privacy.


DP_KEY = "ggeur.privacy.dp."
BY_SERVER = ["federate.make_global_eval", "True"]  # no client scores anything
OF_EACH = "each client's statistics with noise"
CASES = {
    "client": (
        [*CLIENT, *BY_SERVER],
        ["the server and all other clients together", "there is no ledger"],
        [OF_EACH],
    ),
    "server": (
        [*SERVER, *BY_SERVER],
        ["users of the head", "the server sees everything without noise"],
        ["statistics of each client without noise"],
    ),
    "distributed": (
        [*SUMS, *BY_SERVER],
        ["the tolerated number of clients", "a server that makes up keys or clients"],
        ["the sum of all clients' statistics with noise"],
    ),
    "with scores": (
        [*CLIENT, f"{DP_KEY}report_scores", "True"],
        ["clients' scores are exact and not covered"],
        [OF_EACH, "each client's scores: rows, hits and the sum of their losses"],
    ),
    "by a test seed": (
        [*CLIENT, f"{DP_KEY}test_seed", "3", *BY_SERVER],
        ["no guarantee", "not private: the noise is drawn by a test seed"],
        [OF_EACH],
    ),
}


@pytest.mark.parametrize(("settings", "said", "seen"), CASES.values(), ids=CASES)
def test_a_run_with_noise_says_who_learns_what(quickstart, settings, said, seen):
    own = ["ggeur.closed_form", "lda", f"{DP_KEY}epsilon", "1"]
    own += [f"{DP_KEY}rows_per_class", "20", *settings]
    found = privacy_of(load_config(quickstart, own))
    line = privacy_line(found)
    assert all(words in line for words in said)
    assert ("epsilon 1, delta 1e-05, one row of one client" in line) == (
        "no guarantee" not in said
    )
    assert "a person with g rows has g times the mu of one row" in line
    assert found.server_sees == seen
    assert found.clients_see == ["the mean of all rows with noise", "the head"]
    noted = privacy_of(load_config(quickstart, [*own, f"{DP_KEY}ledger", "spent"]))
    assert "there is no ledger" not in privacy_line(noted)


def test_a_dry_run_says_the_noise_for_the_rows_that_are_expected(
    config, tmp_path, ggeur
):
    path = tmp_path / "small.yaml"
    path.write_text(config("outdir", tmp_path / "exp").dump())
    own = ["ggeur.closed_form", "lda", "ggeur.privacy.dp.epsilon", 4]
    own += ["ggeur.privacy.dp.noise", "client", "federate.make_global_eval", True]

    def said(rows) -> float:
        words = [*own, "ggeur.privacy.dp.rows_per_class", rows]
        told = ggeur("--cfg", path, "--dry-run", *words).out
        return float(re.search(r"the mean of all rows: (\S+) in each", told)[1])

    few, many = said(20), said(200)
    assert few == pytest.approx(10 * many, rel=0.1)
    assert few < 1
