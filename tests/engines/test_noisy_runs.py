"""Whole runs under differential privacy, embedded."""

import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import Run, load_federated_data, run
from federatedscope_ggeur.errors import ConfigError, DataError, GGEURError, MessageError
from federatedscope_ggeur.federation.exchanges.base import (
    Request,
    all_kinds,
    answered_kinds,
)
from federatedscope_ggeur.federation.exchanges.noisy_release.exchange import (
    RELEASE_KINDS,
    NoisyReleaseExchange,
    ReleaseClient,
)
from federatedscope_ggeur.federation.exchanges.noisy_release.messages import (
    ReleaseRequest,
    ReleaseVector,
)
from federatedscope_ggeur.federation.exchanges.secure_sums.exchange import SumsClient
from federatedscope_ggeur.federation.exchanges.secure_sums.messages import (
    ASKED_SETTINGS,
    MaskedRequest,
    SumKeysRequest,
)
from federatedscope_ggeur.federation.exchanges.secure_sums.participant import (
    Participant,
)
from federatedscope_ggeur.federation.exchanges.secure_sums.settings import SumSettings
from federatedscope_ggeur.federation.ledger import ledger_path
from federatedscope_ggeur.federation.noise import NoiseSettings, Releaser
from federatedscope_ggeur.predictor import Predictor
from federatedscope_ggeur.reporting import numbers, privacy_line

DP = ["ggeur.closed_form", "lda", "ggeur.privacy.dp.epsilon", 4]
DP += ["ggeur.privacy.dp.rows_per_class", 20, "federate.make_global_eval", True]
SUMS = ["ggeur.privacy.secure_sums", "statistics"]
SERVER, CLIENT = (["ggeur.privacy.dp.noise", who] for who in ("server", "client"))
MODES = {"distributed": SUMS, "server": SERVER, "client": CLIENT}
UNPROJECTED = ["ggeur.privacy.dp.project", 0, "ggeur.privacy.dp.project_seed", 1]
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


def recorded(going):
    """Results of a run, and of all its messages kind, client and what goes up."""
    found = []

    def note(request, replies):
        found.extend((request.kind.name, k, up) for k, up in replies.items())

    going.engine.listen = note
    return going.follow(lambda record: None), found


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
    results, sent = recorded(going)
    noise = results.round0.noise
    assert noise.clients == 3
    assert noise.square
    assert noise.private
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
    for kind, _, up in sent:
        known = PUBLIC | RELEASED[kind].keys()
        assert fields_of(up[0]) <= known, kind


@pytest.mark.parametrize("mode", MODES)
def test_a_client_answers_with_nothing_exact(config, mode):
    """Of all kinds of request there are, it answers those whose values are listed."""
    going = Run(config(*DP, *MODES[mode]))
    names = {kind.name for kind in answered_kinds(going.settings.demands)}
    stages = ("moments", "spread")
    wanted = {f"release_{stage}" for stage in stages}
    if mode == "distributed":
        wanted = {"sum_keys", *(f"sum_{stage}" for stage in stages)}
    assert names == wanted
    assert names <= RELEASED.keys()
    handler = going.engine._handlers[1]
    for kind in all_kinds():
        if kind.name not in names:
            with pytest.raises(
                MessageError, match="this client's settings do not allow"
            ):
                handler.answer(kind, [b""] * len(kind.parts))
    plain = {kind.name for kind in answered_kinds(Run(config()).settings.demands)}
    assert not plain & RELEASED.keys()


def test_scores_go_up_only_if_that_is_asked_for(config):
    own = [*DP, *CLIENT, "federate.make_global_eval", False]
    silent, sent = recorded(Run(config(*own)))
    assert silent.round0.closed_form.avg is None
    assert {kind for kind, *_ in sent} == {"release_moments", "release_spread"}
    told, sent = recorded(Run(config(*own, "ggeur.privacy.dp.report_scores", True)))
    assert told.round0.closed_form.avg is not None
    assert "evaluate" in {kind for kind, *_ in sent}
    assert "not covered" in privacy_line(told.privacy)


def test_results_hold_no_exact_number_of_rows(config):
    results = run(config(*DP, *CLIENT, *SEED))
    assert all(client.train_rows is None for client in results.clients)
    assert results.round0.uploaded_pairs == 0
    assert results.provenance.data is None
    other = run(config(*DP, *CLIENT))
    assert not [n for n in other.notes if "rows" in n or "withh" in n]


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
    cfg = load_config(quickstart, [str(word) for word in words[:-2]])
    data = load_federated_data(cfg)
    exact = {len(rows) for c in data.clients for rows in (c.train, c.test)}
    for path in files:
        text = path.read_bytes().decode(errors="ignore")
        found = exact & set(
            map(int, re.findall(r"(?<![\w.:,-])\d{2,3}(?= rows)", text))
        )
        assert not found, path
        assert "one class" not in text


@pytest.mark.parametrize("mode", MODES)
def test_only_a_test_seed_repeats_the_noise(config, mode):
    settings = [*DP, *MODES[mode]]
    one, other = (run(config(*settings, *SEED)) for _ in range(2))
    assert numbers(one) == numbers(other)
    assert not one.round0.noise.private
    assert one.privacy.guarantee == "none"
    assert "not private" in privacy_line(one.privacy)
    fresh, again = (run(config(*settings)).model for _ in range(2))
    assert not torch.equal(*(m.classifier.weight for m in (fresh, again)))


@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_clients_changes_nothing(config, mode):
    settings = [*DP, *MODES[mode], *SEED, "federate.client_num", 4]
    one = run(config(*settings))
    other = run(config(*settings), order=lambda given: sorted(given)[::-1])
    windowed = run(config(*settings, "ggeur.round0_window", 1))
    for results in (other, windowed):
        for a, b in zip(one.model.parameters(), results.model.parameters()):
            assert torch.equal(a, b)


def test_masks_cancel_and_leave_the_sum_of_all_noise(config):
    going = Run(config(*DP, *SUMS, *SEED))
    going.follow(lambda record: None)
    noise = going.settings.role.of(NoiseSettings)
    plan, found = noise.plan_of(3), going.engine.server.noisy
    releasers = [
        Releaser(k, client.features, client.labels, noise)
        for k, client in going.engine.clients.items()
    ]
    total = sum(one.vector("moments", 3, found.centre) for one in releasers)
    counts, centre = plan.centre(total)
    assert torch.equal(counts, found.counts)
    assert torch.equal(centre, found.centre)
    total = sum(one.vector("spread", 3, centre) for one in releasers)
    assert torch.equal(plan.released(counts, centre, total).sums, found.sums)


def test_a_projection_is_public_and_part_of_the_head(config):
    wide = run(config(*DP, *SERVER, *SEED))
    narrow = run(config(*DP, *SERVER, *SEED, "ggeur.privacy.dp.project", 5))
    assert wide.round0.noise.dim == 16
    assert narrow.round0.noise.dim == 5
    assert narrow.model.in_features == 5
    rows = torch.randn(7, 16)
    assert narrow.prepare(rows).shape == (7, 5)
    assert narrow.predict(rows.numpy()).shape == (7,)
    with pytest.raises(DataError, match=r"rows have 9 dimensions.*of 16 dim"):
        narrow.predict(rows[:, :9].numpy())


@pytest.mark.parametrize("kept", [5, 256])
def test_a_folder_predicts_rows_as_its_run_took_them(
    embeddings_folder, tmp_path, quickstart, kept
):
    words = [*DP, *SERVER, *SEED, "ggeur.privacy.dp.project", kept]
    words += ["data.type", "embeddings@ggeur", "data.root", embeddings_folder]
    words = [str(word) for word in [*words, "outdir", tmp_path / "exp"]]
    results = run(load_config(quickstart, words))
    assert main(["--cfg", str(quickstart), *words]) == 0
    (left,) = (path.parent for path in (tmp_path / "exp").rglob("results.json"))
    rows = np.random.default_rng(0).normal(size=(7, 16)).astype("float32")
    predictor = Predictor(left)
    assert np.array_equal(predictor.predict_proba(rows), results.predict_proba(rows))
    for wide in (Predictor(left), predictor):
        with pytest.raises(DataError, match=r"rows have 20 dimensions.*of 16 dim"):
            wide.predict_proba(np.zeros((3, 20)))


def test_given_rows_must_not_be_in_need_of_projection(config):
    rows = np.random.default_rng(0).normal(size=(30, 16)).astype("float32")
    data = FederatedData.from_arrays(rows, np.arange(30) % 3, np.arange(30) % 5)
    with pytest.raises(ConfigError, match=r"dp\.project: is 5.*16 dimensions"):
        Run(config(*DP, *SERVER, "ggeur.privacy.dp.project", 5), data)


def request(stage, session=b"s" * 16, centre=0.0):
    return ReleaseRequest(
        session, stage, torch.full((16,), centre, dtype=torch.float64)
    )


def side_of(config, *more):
    going = Run(config(*DP, *CLIENT, *more))
    return going.engine.side(1, ReleaseClient)


def test_the_same_request_gets_the_same_bytes(config):
    side = side_of(config)
    first = side.vector(request("moments")).to_bytes()
    assert side.vector(request("moments")).to_bytes() == first
    second = side.vector(request("spread")).to_bytes()
    assert side.vector(request("spread")).to_bytes() == second
    with pytest.raises(MessageError, match="differs from the first"):
        side.vector(request("spread", centre=0.5))
    with pytest.raises(GGEURError, match="epsilon_total"):
        side.vector(request("moments", session=b"t" * 16))


def test_stages_come_in_order(config):
    side = side_of(config)
    with pytest.raises(MessageError, match="comes next"):
        side.vector(request("spread"))
    with pytest.raises(MessageError, match="unknown stage"):
        side.vector(request("all"))


def test_a_client_that_starts_again_repeats_its_bytes_and_is_charged_once(
    config, tmp_path
):
    folder = ["ggeur.privacy.dp.ledger", tmp_path / "ledger"]
    first = side_of(config, *folder).vector(request("moments")).to_bytes()
    again = side_of(config, *folder)
    assert again.vector(request("moments")).to_bytes() == first
    again.vector(request("spread"))
    with pytest.raises(GGEURError, match="nothing is sent"):
        again.vector(request("moments", session=b"t" * 16))
    more = side_of(config, *folder, "ggeur.privacy.dp.epsilon_total", 8)
    fresh = more.vector(request("moments", session=b"t" * 16)).to_bytes()
    assert hashlib.sha256(fresh).digest() != hashlib.sha256(first).digest()


def test_a_session_that_comes_back_gets_no_new_noise(config):
    """A server alternates sessions: the average of two vectors would tell more."""
    side = side_of(config, "ggeur.privacy.dp.epsilon_total", 8)
    side.vector(request("moments"))
    side.vector(request("moments", session=b"t" * 16))
    with pytest.raises(GGEURError, match="second release"):
        side.vector(request("moments"))


@pytest.mark.parametrize("far", [0.26, 1e30, 1e308])
def test_a_centre_where_no_mean_can_be_is_refused(config, far):
    """Far away, numbers overflow, and no noise covers what they tell."""
    side = side_of(config)
    side.vector(request("moments"))
    with pytest.raises(MessageError, match="too far out to be a mean of rows"):
        side.vector(request("spread", centre=far))
    side.vector(request("spread", centre=0.25))


@pytest.mark.parametrize(
    ("spoilt", "field"),
    [
        ({"values": torch.zeros(27, dtype=torch.int64)}, "values"),
        ({"stage": "spread"}, "stage"),
        ({"session": b"t" * 16}, "session"),
        ({"client": 9}, "client"),
    ],
    ids=str,
)
def test_a_vector_that_cannot_be_added_is_refused(config, spoilt, field):
    going = Run(config(*DP, *CLIENT))
    exchange = going.engine.coordinator.find(NoisyReleaseExchange)
    asked = Request(RELEASE_KINDS["moments"], 0, {1: (b"",)})
    values = torch.zeros(12 + 16, dtype=torch.int64)
    vector = ReleaseVector(1, exchange.session, "moments", values)
    asked.kind.validate(exchange, asked, vector)
    with pytest.raises(MessageError) as caught:
        asked.kind.validate(exchange, asked, replace(vector, **spoilt))
    assert caught.value.field == field


def keys_request(settings, session, roster=(1, 2, 3)):
    own = {name: getattr(settings, name) for name in ASKED_SETTINGS}
    return SumKeysRequest(session, roster, **own)


def masked_request(stage, session, keys, **more):
    at = {one.client: one for one in keys}
    return MaskedRequest(
        session,
        stage,
        tuple(at),
        tuple(one.key for one in keys),
        tuple(one.commitment for one in keys),
        tuple(one.signature for one in keys),
        **more,
    )


def test_a_sum_that_begins_anew_under_its_old_name_gets_no_new_noise(config):
    going = Run(config(*DP, *SUMS, "ggeur.privacy.dp.epsilon_total", 8))
    settings = going.settings.role.of(SumSettings)
    sides = [going.engine.side(k, SumsClient).participant for k in (1, 2, 3)]

    def ask(session):
        asked = keys_request(settings, session)
        keys = [one.key(asked) for one in sides]
        return sides[0].masked(masked_request("moments", session, keys))

    first, other = b"s" * 16, b"t" * 16
    ask(first)
    sides[0].key(keys_request(settings, other))
    with pytest.raises(GGEURError, match="second release"):
        ask(first)


def test_a_process_whose_journal_another_one_has_changed_charges_nothing(
    config, tmp_path
):
    words = [*DP, *SUMS, "ggeur.privacy.dp.epsilon_total", 8]
    words += ["ggeur.privacy.dp.ledger", tmp_path / "ledger"]
    going = Run(config(*words))
    settings = going.settings.role.of(SumSettings)
    noted = replace(settings, store=str(tmp_path / "sums"))

    def begin(k):
        client = going.engine.clients[k]
        return Participant(k, client.features, client.labels, noted)

    sides = [begin(k) for k in (1, 2, 3)]
    first, second = b"s" * 16, b"t" * 16
    keys = [side.key(keys_request(settings, first)) for side in sides]
    begin(1).key(keys_request(settings, second))
    with pytest.raises(ConfigError, match="client 1 runs twice"):
        sides[0].masked(masked_request("moments", first, keys))
    assert not ledger_path(str(tmp_path / "ledger"), 1).exists()


def test_a_roster_of_clients_that_are_not_there_is_refused(config):
    """Each of 100 clients would add a share that is too small for three."""
    going = Run(config(*DP, *SUMS))
    settings = going.settings.role.of(SumSettings)
    side = going.engine.side(1, SumsClient).participant
    with pytest.raises(MessageError, match="less noise"):
        side.key(keys_request(settings, b"s" * 16, tuple(range(1, 101))))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ([*DP[:4], *CLIENT], "rows_per_class"),
        ([*DP], "dp.noise"),
        ([*DP, *SUMS, *CLIENT], "secure_sums"),
        ([*DP, *CLIENT, "ggeur.closed_form", "ridge"], "closed_form"),
        ([*DP, *CLIENT, "ggeur.closed_form", "mixture"], "closed_form"),
        ([*DP, *CLIENT, "ggeur.closed_form", "none"], "closed_form"),
        ([*DP, *CLIENT, "ggeur.init", "closed_form"], "init"),
        ([*DP, *CLIENT, "ggeur.lda.shrinkage", 0.3], "shrinkage"),
        ([*DP, *CLIENT, "ggeur.lda.priors", "none"], "priors"),
        ([*DP, *CLIENT, "ggeur.lda.standardize", True], "standardize"),
        ([*DP, *CLIENT, "ggeur.personal.head", "lda"], "personal"),
        ([*DP, *CLIENT, "ggeur.confidences", True], "confidences"),
        ([*DP, *CLIENT, "ggeur.text.ensemble", 1], "text.ensemble"),
        ([*DP, *CLIENT, "ggeur.text.prior", 4, "ggeur.privacy.dp.prior", "a"], "prior"),
        ([*DP, *CLIENT, "eval.split", "['test', 'train']"], "eval.split"),
        ([*DP, *CLIENT, "federate.unseen_clients_rate", 0.4], "unseen"),
        ([*DP, *CLIENT, "data.transform", "['l2']"], "data.transform"),
        ([*DP, *CLIENT, "ggeur.privacy.dp.tolerated", 1], "tolerated"),
        ([*DP, *SUMS, "ggeur.privacy.dp.tolerated", 2], "tolerated"),
        ([*DP, *CLIENT, "ggeur.privacy.dp.epsilon_total", 1], "epsilon_total"),
        (["ggeur.privacy.dp.report_scores", True], "report_scores"),
        ([*DP, *CLIENT, "ggeur.privacy.dp.epsilon", -1], "epsilon"),
        ([*DP, *CLIENT, "ggeur.privacy.dp.delta", 0], "delta"),
        ([*DP, *CLIENT, "ggeur.base_method", "centralised"], "base_method"),
        ([*DP, *CLIENT, "ggeur.privacy.min_samples", 9], "min_samples"),
        ([*DP, *SUMS, "ggeur.privacy.secure_sums_radius", 2], "sums_radius"),
        ([*DP, *SUMS, "ggeur.privacy.secure_sums_fraction_bits", 30], "fraction_bits"),
        ([*DP, *SUMS, "ggeur.privacy.secure_sums_new_roster", True], "new_roster"),
        ([*DP, *CLIENT, *UNPROJECTED], "project_seed"),
    ],
)
def test_what_cannot_go_with_it_is_refused_by_name(config, settings, named):
    with pytest.raises(ConfigError, match=named):
        config(*settings)


def test_a_list_of_classes_that_comes_with_the_data_is_said(config):
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


def test_public_rows_help(config, tmp_path, embeddings_folder):
    plain = run(config(*DP, *CLIENT, *SEED, "ggeur.privacy.dp.epsilon", 0.1))
    prior = public_file(tmp_path, embeddings_folder)
    helped = run(config(*DP, *CLIENT, *SEED, "ggeur.privacy.dp.epsilon", 0.1, *prior))
    assert helped.round0.closed_form.avg > plain.round0.closed_form.avg + 0.2
    assert helped.round0.closed_form.details["prior"] == "public rows"


@pytest.mark.parametrize("kept", [256, 12])
def test_text_helps(config, kept):
    """It is projected as the embeddings are."""
    noise = [*DP, *CLIENT, *SEED, "ggeur.privacy.dp.epsilon", 0.1]
    noise += ["ggeur.privacy.dp.project", kept]
    plain, helped = (run(config(*noise, "ggeur.text.prior", k)) for k in (0, 4))
    assert helped.round0.closed_form.avg > plain.round0.closed_form.avg + 0.1
    assert helped.round0.closed_form.details["prior"] == "text"
    assert helped.round0.closed_form.details["text_bridge"] > 0


def test_public_rows_that_lack_a_class_are_refused_before_anything_is_spent(
    config, tmp_path, embeddings_folder
):
    prior = public_file(tmp_path, embeddings_folder, rows=11)
    with pytest.raises(DataError, match="no row of class 11"):
        Run(config(*DP, *CLIENT, *prior))
    with pytest.raises(DataError, match="there is no file"):
        Run(config(*DP, *CLIENT, "ggeur.privacy.dp.prior", "nowhere.npz"))


def test_the_kinds_of_both_rooms_have_their_own_names():
    assert {kind.name for kind in RELEASE_KINDS.values()} == {
        "release_moments",
        "release_spread",
    }
