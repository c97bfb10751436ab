"""What a client releases under differential privacy, when, and how often.

Tests of its exchange, and of the noise in a secure sum.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError
from federatedscope_ggeur.extras.differential_privacy import noisy_release, uploads
from federatedscope_ggeur.extras.differential_privacy.exchange import (
    RELEASE_KINDS,
    NoisyReleaseExchange,
    ReleaseClient,
)
from federatedscope_ggeur.extras.differential_privacy.ledger import (
    Ledger,
    ledger_path,
    read_ledger,
)
from federatedscope_ggeur.extras.differential_privacy.noise import (
    NoiseSettings,
    Releaser,
)
from federatedscope_ggeur.extras.secure_sums import messages
from federatedscope_ggeur.extras.secure_sums.exchange import SumsClient
from federatedscope_ggeur.extras.secure_sums.participant import Participant
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings
from federatedscope_ggeur.federation.exchanges.base import Request

DP = ["ggeur.closed_form", "lda", "ggeur.privacy.dp.epsilon", 4]
DP += ["ggeur.privacy.dp.rows_per_class", 20, "federate.make_global_eval", True]
SUMS = ["ggeur.privacy.secure_sums", "statistics"]
CLIENT = ["ggeur.privacy.dp.noise", "client"]
TWICE = ["ggeur.privacy.dp.epsilon_total", 8]
FIRST, SECOND = b"s" * 16, b"t" * 16


def request(stage, session=FIRST, centre=0.0):
    return uploads.ReleaseRequest(
        session, stage, torch.full((16,), centre, dtype=torch.float64)
    )


def side_of(config, *more):
    return Run(config(*DP, *CLIENT, *more)).engine.side(1, ReleaseClient)


def test_the_same_request_gets_the_same_bytes_and_stages_come_in_order(config):
    side = side_of(config)
    with pytest.raises(MessageError, match="comes next"):
        side.vector(request("spread"))
    with pytest.raises(MessageError, match="unknown stage"):
        side.vector(request("all"))
    for stage in ("moments", "spread"):
        first = side.vector(request(stage)).to_bytes()
        assert side.vector(request(stage)).to_bytes() == first
    with pytest.raises(MessageError, match="differs from the first"):
        side.vector(request("spread", centre=0.5))
    with pytest.raises(GGEURError, match="epsilon_total"):
        side.vector(request("moments", SECOND))


def test_a_client_that_starts_again_repeats_its_bytes_and_is_charged_once(
    config, tmp_path
):
    folder = ["ggeur.privacy.dp.ledger", tmp_path / "ledger"]
    first = side_of(config, *folder).vector(request("moments")).to_bytes()
    again = side_of(config, *folder)
    assert again.vector(request("moments")).to_bytes() == first
    again.vector(request("spread"))
    with pytest.raises(GGEURError, match="nothing is sent"):
        again.vector(request("moments", SECOND))
    more = side_of(config, *folder, *TWICE)
    fresh = more.vector(request("moments", SECOND)).to_bytes()
    assert fresh != first


def test_a_store_that_is_put_back_between_two_stages_gets_no_new_noise(
    config, tmp_path
):
    """The ledger says that the stage was sent."""
    folder = ["ggeur.privacy.dp.ledger", tmp_path]
    side, kept = side_of(config, *folder), tmp_path / "client_0001.upload"
    side.vector(request("moments"))
    before = kept.read_bytes()
    side.vector(request("spread"))
    kept.write_bytes(before)
    with pytest.raises(GGEURError, match="nothing is sent"):
        side_of(config, *folder).vector(request("spread"))


def test_the_store_of_another_client_is_refused(config, tmp_path):
    folder = ["ggeur.privacy.dp.ledger", tmp_path]
    side_of(config, *folder).vector(request("moments"))
    kept = tmp_path / "client_0001.upload"
    kept.rename(tmp_path / "client_0002.upload")
    with pytest.raises(ConfigError, match="expected the sender's own number, got 1"):
        Run(config(*DP, *CLIENT, *folder)).engine.side(2, ReleaseClient)


def test_a_session_that_comes_back_gets_no_new_noise(config):
    """A server alternates sessions: the average of two vectors would tell more."""
    side = side_of(config, *TWICE)
    side.vector(request("moments"))
    side.vector(request("moments", SECOND))
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


def test_a_vector_that_cannot_be_added_is_refused(config):
    exchange = Run(config(*DP, *CLIENT)).engine.coordinator.find(NoisyReleaseExchange)
    asked = Request(RELEASE_KINDS["moments"], 0, {1: (b"",)})
    values = torch.zeros(12 + 16, dtype=torch.int64)
    vector = uploads.ReleaseVector(1, exchange.session, "moments", values)
    asked.kind.validate(exchange, asked, vector)
    wrong = {"values": values[1:], "stage": "spread", "session": SECOND, "client": 9}
    for field, value in wrong.items():
        with pytest.raises(MessageError) as caught:
            asked.kind.validate(exchange, asked, replace(vector, **{field: value}))
        assert caught.value.field == field


class TestInSums:
    def keys_request(self, settings, session, roster=(1, 2, 3)):
        own = {name: getattr(settings, name) for name in messages.ASKED_SETTINGS}
        return messages.SumKeysRequest(session, roster, **own)

    def masked_request(self, session, keys):
        columns = zip(*((k.client, k.key, k.commitment, k.signature) for k in keys))
        return messages.MaskedRequest(session, "moments", *map(tuple, columns))

    def test_a_sum_that_begins_anew_under_its_old_name_gets_no_new_noise(self, config):
        going = Run(config(*DP, *SUMS, *TWICE))
        settings = going.settings.role.of(SumSettings)
        sides = [going.engine.side(k, SumsClient).participant for k in (1, 2, 3)]

        def ask(session):
            asked = self.keys_request(settings, session)
            keys = [one.key(asked) for one in sides]
            return sides[0].masked(self.masked_request(session, keys))

        ask(FIRST)
        sides[0].key(self.keys_request(settings, SECOND))
        with pytest.raises(GGEURError, match="second release"):
            ask(FIRST)

    def test_a_process_whose_journal_another_one_has_changed_charges_nothing(
        self, config, tmp_path
    ):
        ledger = ["ggeur.privacy.dp.ledger", tmp_path / "ledger"]
        going = Run(config(*DP, *SUMS, *TWICE, *ledger))
        settings = going.settings.role.of(SumSettings)
        noted = replace(settings, store=str(tmp_path / "sums"))

        def begin(k):
            client = going.engine.clients[k]
            return Participant(k, client.features, client.labels, noted)

        sides = [begin(k) for k in (1, 2, 3)]
        keys = [side.key(self.keys_request(settings, FIRST)) for side in sides]
        begin(1).key(self.keys_request(settings, SECOND))
        with pytest.raises(ConfigError, match="client 1 runs twice"):
            sides[0].masked(self.masked_request(FIRST, keys))
        assert not ledger_path(str(tmp_path / "ledger"), 1).exists()

    def test_a_roster_of_clients_that_are_not_there_is_refused(self, config):
        """Each of 100 clients would add a share that is too small for three."""
        going = Run(config(*DP, *SUMS))
        settings = going.settings.role.of(SumSettings)
        side = going.engine.side(1, SumsClient).participant
        with pytest.raises(MessageError, match="less noise"):
            side.key(self.keys_request(settings, FIRST, tuple(range(1, 101))))


OWN = "ggeur.privacy.dp."
ENOUGH = [f"{OWN}rows_per_class", noisy_release.ROWS_FOR_SQUARE]


@pytest.mark.parametrize(
    ("settings", "square"),
    [
        (ENOUGH, True),
        ([f"{OWN}rows_per_class", noisy_release.ROWS_FOR_SQUARE - 1], False),
        ([*ENOUGH, "ggeur.closed_form", "ncm"], False),
        ([*ENOUGH, f"{OWN}prior", "public.npz"], False),
    ],
    ids=str,
)
def test_who_releases_the_second_moment(
    config, embeddings_folder, tmp_path, monkeypatch, settings, square
):
    monkeypatch.chdir(tmp_path)
    held = np.load(embeddings_folder / "art.npz")
    np.savez("public.npz", **{name: held[name][:12] for name in held})
    noise = Run(config(*DP, *CLIENT, *settings)).settings.role.of(NoiseSettings)
    assert noise.plan_of(3).square is square


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["ggeur.privacy.dp.report_scores", True], "report_scores"),
        (DP, "dp.noise"),
        ([*DP[:4], *CLIENT], "rows_per_class"),
        ([*DP, *SUMS, *CLIENT], "secure_sums"),
        ([*DP, *SUMS, f"{OWN}tolerated", 2], "tolerated"),
        ([*DP, *SUMS, "ggeur.privacy.secure_sums_radius", 2], "sums_radius"),
        ([*DP, *SUMS, "ggeur.privacy.secure_sums_fraction_bits", 30], "fraction_bits"),
        ([*DP, *SUMS, "ggeur.privacy.secure_sums_new_roster", True], "new_roster"),
        *(
            ([*DP, *CLIENT, *settings], named)
            for settings, named in [
                (["ggeur.closed_form", "ridge"], "closed_form"),
                (["ggeur.closed_form", "mixture"], "closed_form"),
                (["ggeur.closed_form", "none"], "closed_form"),
                (["ggeur.init", "closed_form"], "init"),
                (["ggeur.lda.shrinkage", 0.3], "shrinkage"),
                (["ggeur.lda.priors", "none"], "priors"),
                (["ggeur.lda.standardize", True], "standardize"),
                (["ggeur.personal.head", "lda"], "personal"),
                (["ggeur.confidences", True], "confidences"),
                (["ggeur.text.ensemble", 1], "text.ensemble"),
                (["ggeur.text.prior", 4, f"{OWN}prior", "a"], "prior"),
                (["eval.split", "['test', 'train']"], "eval.split"),
                (["federate.unseen_clients_rate", 0.4], "unseen"),
                (["data.transform", "['l2']"], "data.transform"),
                ([f"{OWN}tolerated", 1], "tolerated"),
                ([f"{OWN}epsilon_total", 1], "epsilon_total"),
                ([f"{OWN}epsilon", -1], "epsilon"),
                ([f"{OWN}delta", 0], "delta"),
                (["ggeur.base_method", "centralised"], "base_method"),
                (["ggeur.privacy.min_samples", 9], "min_samples"),
                ([f"{OWN}project", 0, f"{OWN}project_seed", 1], "project_seed"),
            ]
        ),
    ],
)
def test_what_cannot_go_with_noise_is_refused_by_name(config, settings, named):
    with pytest.raises(ConfigError, match=named):
        config(*settings)


# What clients have spent adds up by row, and nothing resets it.


MU = noisy_release.mu_of(1.0, 1e-5)
ROWS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.zeros(6, dtype=torch.int64)


def releaser(folder, rows, total=1.0, preparation="l2", number=1):
    settings = NoiseSettings(
        plan=noisy_release.ReleasePlan(1, 4, 1.0, 1e-5, False),
        noise="client",
        preparation=preparation,
        class_names=("a",),
        ledger=str(folder),
        most_mu=noisy_release.mu_of(total, 1e-5),
    )
    return Releaser(number, rows, LABELS[: len(rows)], settings)


def test_rows_are_released_once_by_default(tmp_path):
    releaser(tmp_path, ROWS[:3]).charge(b"one", "moments")
    releaser(tmp_path, ROWS[3:]).charge(b"two", "moments")  # other rows
    for overlapping in (ROWS[2:4], ROWS, ROWS[:1]):
        with pytest.raises(GGEURError, match="nothing is sent"):
            releaser(tmp_path, overlapping).charge(b"three", "moments")
    held, _ = read_ledger(ledger_path(str(tmp_path), 1))
    assert [entry.rows for entry in held.entries] == [3, 3]
    assert held.most == pytest.approx(MU)


def test_squares_of_mu_add_up(tmp_path):
    allowed = int(noisy_release.mu_of(2.0, 1e-5) ** 2 / MU**2)
    for session in range(allowed):
        releaser(tmp_path, ROWS, total=2.0).charge(b"%d" % session, "moments")
    with pytest.raises(GGEURError, match="nothing is sent"):
        releaser(tmp_path, ROWS, total=2.0).charge(b"more", "moments")
    held, _ = read_ledger(ledger_path(str(tmp_path), 1))
    assert allowed == len(held.entries) == 3
    assert held.most == pytest.approx(math.sqrt(3) * MU)


def test_another_projection_does_not_make_other_rows(tmp_path):
    releaser(tmp_path, ROWS).charge(b"one", "moments")
    turned = releaser(tmp_path, -ROWS, preparation="another")
    with pytest.raises(GGEURError, match="nothing is sent"):
        turned.charge(b"two", "moments")


def test_a_ledger_does_not_tell_rows(tmp_path):
    releaser(tmp_path / "a", ROWS).charge(b"one", "moments")
    releaser(tmp_path / "b", ROWS).charge(b"one", "moments")
    spent = [
        set(json.loads(ledger_path(str(tmp_path / x), 1).read_text())["spent"]["l2"])
        for x in "ab"
    ]
    assert not spent[0] & spent[1]  # by the salt


@pytest.mark.parametrize("damage", ["{", '{"form": 2}', "[]", ""])
def test_a_damaged_ledger_is_refused_and_stays(tmp_path, damage):
    releaser(tmp_path, ROWS).charge(b"one", "moments")
    path = ledger_path(str(tmp_path), 1)
    path.write_text(damage)
    with pytest.raises(ConfigError, match="cannot be used"):
        releaser(tmp_path, ROWS)
    assert path.read_text() == damage


def test_a_ledger_without_its_salt_is_refused(tmp_path):
    releaser(tmp_path, ROWS).charge(b"one", "moments")
    salt = next(tmp_path.glob("*.salt"))
    salt.unlink()
    with pytest.raises(ConfigError, match="is missing"):
        Ledger(str(tmp_path), 1)
    salt.write_bytes(b"x" * 32)
    with pytest.raises(ConfigError, match="belongs to another ledger"):
        Ledger(str(tmp_path), 1)


def test_the_command_prints_it(tmp_path, ggeur):
    releaser(tmp_path, ROWS, total=4.0).charge(b"one", "moments")
    releaser(tmp_path, ROWS, total=4.0).charge(b"two", "moments")
    said = ggeur("privacy-ledger", tmp_path).out
    assert "client_0001.ledger: 2 releases" in said
    assert "epsilon 1)" in said
    assert f"no row has spent more than mu {math.sqrt(2) * MU:.4f}" in said
    assert "no ledger" in ggeur("privacy-ledger", tmp_path / "nowhere", status=1).err
    (tmp_path / "a.txt").write_text("a")
    error = ggeur("privacy-ledger", tmp_path / "a.txt", status=1).err
    assert "a.txt' is no ledger: " in error
    assert "Do not delete" not in error


@pytest.mark.parametrize("begun", [False, True], ids=["first stage", "second stage"])
def test_of_two_runs_of_one_client_one_sends(config, tmp_path, begun):
    """Else their noise would average out, or each would spend."""
    settings = [*TWICE, "ggeur.privacy.dp.ledger", tmp_path]
    first = side_of(config, *settings)
    if begun:
        first.vector(request("moments"))
    other = side_of(config, *settings)
    stage = "spread" if begun else "moments"
    first.vector(request(stage))
    for asked in (request(stage), request("moments", SECOND)):
        with pytest.raises(GGEURError, match="client 1 runs twice"):
            other.vector(asked)
    spent, _ = read_ledger(ledger_path(str(tmp_path), 1))
    assert len(spent.entries) == 1
