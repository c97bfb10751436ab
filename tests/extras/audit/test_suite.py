"""All attacks on real runs: what fails for today's defaults, and what sums change."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from exchange_plugin import NAMED, write_plugin
from own_process import PATIENCE
from private_words import LDA, OTHERS, SHRUNK_LDA, SUMS

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.extras.audit.answers import Verdict, audit_run
from federatedscope_ggeur.extras.audit.base import (
    AttackResult,
    Clock,
    Transcript,
    Truth,
)
from federatedscope_ggeur.extras.audit.canaries import canaries
from federatedscope_ggeur.extras.audit.head_updates import a4, a5
from federatedscope_ggeur.extras.audit.known_rows import a10
from federatedscope_ggeur.extras.audit.liar import a11
from federatedscope_ggeur.extras.audit.told_numbers import a7
from federatedscope_ggeur.extras.audit.transcript import recorded, truth_of
from federatedscope_ggeur.extras.differential_privacy import noisy_release
from federatedscope_ggeur.extras.differential_privacy.noise import NoiseSettings

SPARSE = ["data.splitter_args", "[{'alpha': 0.05}]", "federate.client_num", 9]


def found(config, *settings, seconds=PATIENCE):
    run = Run(config("ggeur.space", "raw", *settings))
    findings = audit_run(recorded(run), truth_of(run), seconds)
    return {one.attack: one for one in findings}, findings


def fails(findings, level, adversary="curious"):
    return Verdict.of(findings, level, adversary).failed


def test_totals_for_the_space_tell_members(config):
    """Of few rows in many dimensions each moves mean and variances towards itself."""
    settings = ["ggeur.space", "standard", "ggeur.steps", [], "federate.client_num", 9]
    run = Run(config(*settings, "federate.total_round_num", 1))
    seen = recorded(run)
    assert seen.totals.keys() == set(run.held.numbers)
    findings = audit_run(seen, truth_of(run), attacks=["A2", "A12"])
    assert findings[0].value > 0.6
    assert findings[0].tried == sum(one.totals.count for one in seen.totals.values())
    assert findings[1].tried is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        SHRUNK_LDA,
        ["ggeur.closed_form", "ncm"],
        [*SHRUNK_LDA, "ggeur.init", "closed_form", *OTHERS],
    ],
    ids=["lda", "ncm", "lda and ggeur"],
)
def test_near_owners_learn_nothing(config, settings):
    by_name, findings = found(config, *settings, *SUMS, *SPARSE)
    assert not {"S1", "S2", "S3", "S4"} & set(fails(findings, "rows"))
    assert all("no client owns" not in by_name[name].note for name in ("S1", "S2"))
    if settings is SHRUNK_LDA:
        assert by_name["S2"].passed is True


@pytest.mark.parametrize("hidden", [0, 64])
def test_a_head_trained_from_sums_gives_rows_of_small_classes_away(config, hidden):
    """None of them to 0.99, but nearly each is the nearest of all known rows."""
    mlp = ["ggeur.mlp_hidden_dim", hidden]
    by_name, findings = found(config, *OTHERS, *SUMS, *SPARSE, *mlp)
    one = by_name["A4"]
    assert fails(findings, "rows") == ("A4",)
    assert one.chance < one.limit < one.value <= one.tried
    assert "median rank of its nearest row 1 of" in one.note
    assert by_name["A5"].value > 0.7


OUTCOMES = [
    ([True, False], 1, "FAILED"),
    ([True, None], 0, "passed"),
    ([None], 0, "undecided"),
    ([None], 5, "undecided"),
    ([None], None, "nothing to attack"),
    ([], None, "nothing to attack"),
]


@pytest.mark.parametrize(("passed", "tried", "outcome"), OUTCOMES)
def test_a_verdict_claims_nothing_that_was_not_tried(passed, tried, outcome):
    findings = [
        AttackResult("A", "x", "", level="rows", passed=one, tried=tried)
        for one in passed
    ]
    other = AttackResult("B", "x", "", level="rows", passed=False, adversary="lying")
    found = Verdict.of([*findings, other], "rows", "curious")
    assert found.outcome == outcome
    assert Verdict.of([*findings, other], "rows", "lying").failed == ("B",)
    assert Verdict.of(findings, "membership", "curious").outcome == "nothing to attack"


# A mechanism that keeps its claim passes; one with half the noise is caught.
#
# Tests of audit/released.py, too: A10 and A11 on a release.


@dataclass(frozen=True)
class Weak(noisy_release.ReleasePlan):
    """Half of the noise."""

    def noises(self, stage, count, words=noisy_release.system_words):
        return super().noises(stage, count, words) // 2


def settings(by, square):
    return NoiseSettings(
        plan=noisy_release.ReleasePlan(9, 40, 4.0, 1e-5, square), noise=by
    )


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "distributed", "server"])
def test_the_mechanism_keeps_its_claim(by, monkeypatch):
    # Fixed noise: some draws in a hundred exceed the limit by chance.
    monkeypatch.setattr("os.urandom", np.random.default_rng(0).bytes)
    found = list(canaries(settings(by, square=True), 9, runs=400))
    assert [one.passed for one in found] == [True] * 3
    # and the attack is a real one: it finds most of what it may
    assert found[-1].value > 0.7 * found[-1].limit


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "distributed"])
def test_half_the_noise_is_caught(by):
    own = settings(by, square=False)
    small = noisy_release.ReleasePlan(2, 16, 4.0, 1e-5, False)
    clients, spared = (3, 2) if by == "client" else (3, 1)
    weak = Weak(**{**vars(small), "clients": clients, "spared": spared})
    found = list(canaries(own, 9, runs=300, made_by=weak))
    assert not all(one.passed for one in found)
    assert np.all([one.level == "dp" for one in found])


CLASSES, DIM = 6, 24


def truth():
    """Three clients; of each class client 1 has four rows, and client 2 or 3 has one
    or two."""
    drawn = torch.Generator().manual_seed(0)

    def rows(labels):
        return torch.randn(len(labels), DIM, generator=drawn), torch.tensor(labels)

    clients = {
        1: rows([c for c in range(CLASSES) for _ in range(4)]),
        2: rows([0, 1, 2]),
        3: rows([3, 3, 4, 5]),
    }
    return Truth(clients, rows([c for c in range(CLASSES) for _ in range(5)]), CLASSES)


def released(held, has_noise, square):
    plan = noisy_release.ReleasePlan(CLASSES, DIM, 4.0, 1e-5, square)
    words = noisy_release.seeded_words(np.random.default_rng(0))
    x, y = (torch.cat(parts) for parts in zip(*held.clients.values()))

    def noise(stage):
        return plan.noise(stage, words) * has_noise

    counts, centre = plan.centre(plan.moments(x, y) + noise("moments"))
    total = plan.spread(x, y, centre) + noise("spread")
    return Transcript(role=None, noisy=plan.released(counts, centre, total))


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("has_noise", [False, True])
def test_only_the_noise_stops_them(has_noise, square):
    held = truth()
    seen = released(held, has_noise, square)
    (members,) = a10(seen, held, Clock(10))
    (rows,) = a11(seen, held, Clock(10))
    assert members.passed is rows.passed is has_noise
    assert rows.tried == CLASSES
    assert rows.value == (0 if has_noise else CLASSES)
    assert rows.observer == "the server and client 1"


def test_a_run_is_attacked_by_what_it_released(config):
    noise = ["ggeur.privacy.dp.epsilon", 4, "ggeur.privacy.dp.rows_per_class", 20]
    sums = ["ggeur.privacy.secure_sums", "statistics", "federate.client_num", 6]
    run = Run(config(*LDA, *noise, *SPARSE, *sums))
    seen, held = recorded(run), truth_of(run)
    assert seen.lied is None
    (members,) = a10(seen, held, Clock(10))
    (rows,) = a11(seen, held, Clock(10))
    assert members.tried == int(held.totals.sum())
    assert rows.tried
    assert rows.passed


# What settings beside the threshold keep from the attacks.


RAW = ["ggeur.space", "raw", "ggeur.steps", [1], "federate.total_round_num", 1]


def attacked(config, attack, *settings):
    going = Run(config(*SPARSE, *RAW, *settings))
    found = list(attack(recorded(going), truth_of(going), Clock(10)))
    return found[0], going


def test_what_a_client_counts_for_says_what_is_withheld_unless_told_not_to(config):
    plain, _ = attacked(config, a7)
    assert plain.passed is False
    nothing, _ = attacked(config, a7, "ggeur.privacy.min_samples", 1)
    assert (nothing.passed, nothing.tried) == (None, None)
    assert nothing.note == "no client that sends statistics withholds rows"
    closed, going = attacked(config, a7, "ggeur.weight", "statistics")
    assert closed.passed is True
    for k, client in going.engine.clients.items():
        counts = going.held.counts[going.held.numbers.index(k)]
        assert client.aggregation_weight == counts[counts >= 5].sum()


def test_withheld_rows_are_not_in_an_update_where_they_are_not_trained_on(config):
    """A5 is of classes held: withheld ones are then like absent ones."""
    settings = ["ggeur.steps", [], "train.batch_or_epoch", "batch"]
    settings += ["train.local_update_steps", 1, "dataloader.batch_size", 512]
    plain, _ = attacked(config, a4, *settings)
    assert plain.value > 0
    off = ["ggeur.privacy.train_withheld", False]
    closed, going = attacked(config, a4, *settings, *off)
    assert (closed.value, closed.passed) == (0.0, True)
    for client in going.engine.clients.values():
        _, labels = client.recipe.draw()
        assert (torch.bincount(labels, minlength=12)[labels] >= 5).all()
    by_bias, _ = attacked(config, a5, *settings, *off)
    plainly, _ = attacked(config, a5, *settings)
    assert by_bias.value < plainly.value


# What the audit says of a plugin's exchange.


@pytest.mark.usefixtures("forget_exchange")
def test_it_is_named_with_what_it_reveals(quickstart, tmp_path):
    path = write_plugin(tmp_path, quickstart)
    settings = [*NAMED, "federate.total_round_num", 1, "ggeur.space", "raw"]
    run = Run(load_config(path, [*settings, "outdir", str(tmp_path)]))
    findings = audit_run(recorded(run), truth_of(run), attacks=["A12"])
    assert {found.level for found in findings} == {"rows", "membership"}
    told = "how many classes each client holds"
    for found in findings:
        assert (found.passed, found.tried) == (None, False)
        assert f"classes_held of a plugin reveals {told}" in found.note


NO_STEPS = ["ggeur.steps", [], "ggeur.space", "raw"]
UNREAD = {
    "a method": (["ggeur.base_method", "fedproto"], "base method fedproto sends class"),
    "an augmentation": (["ggeur.augmentation", "fedmix"], "fedmix sends in round 0: "),
    "pooled rows": (
        ["ggeur.base_method", "centralised", "ggeur.unseen_domains", ["art"]],
        "centralised pools the rows of all clients",
    ),
    "calibration": (["ggeur.calibrate", "ccvr"], "calibration reveals statistics of"),
    "train scores": (["eval.split", ["test", "train"]], "(here: evaluate) reveals"),
}


@pytest.mark.parametrize(("settings", "said"), UNREAD.values(), ids=UNREAD)
def test_what_no_attack_reads_is_not_tried_and_no_pass(config, settings, said):
    run = Run(config(*NO_STEPS, "federate.total_round_num", 1, *settings))
    findings = audit_run(recorded(run), truth_of(run), attacks=["A12"])
    assert said in findings[0].note
    for level in ("rows", "membership"):
        verdict = Verdict.of(findings, level, "curious")
        assert (verdict.outcome, verdict.untried) == ("undecided", ("A12",))


@pytest.mark.parametrize(
    "settings", [[], ["ggeur.base_method", "scaffold"]], ids=["fedavg", "scaffold"]
)
def test_updates_and_what_follows_from_them_are_attacked(config, settings):
    run = Run(config(*NO_STEPS, "federate.total_round_num", 1, *settings))
    (found,) = audit_run(recorded(run), truth_of(run), attacks=["A12"])
    assert found.tried is None


# What the recorder keeps of a run is what each side got.


def test_of_a_run_with_rounds(config):
    run = Run(config("ggeur.privacy.min_samples", 1))
    seen = recorded(run)
    assert list(seen.uploads) == list(seen.replies) == list(seen.updates) == [1, 2, 3]
    truth = truth_of(run)
    for k, upload in seen.uploads.items():
        assert upload.counts.tolist() == truth.counts(k).tolist()
    assert sorted(seen.geometry.shapes) == list(range(12))
    for updates in seen.updates.values():
        assert len(updates) == 3
        assert all(update.weight.abs().sum() > 0 for update in updates)
    assert seen.trains
    assert seen.head is None
    assert seen.lied is None
    assert len(run.history.rounds) == 3


def test_of_answers_about_heads(config):
    """They are the bytes that the server got; A13 finds no withheld row in them."""
    few = ["federate.client_num", 9, "data.splitter_args", [{"alpha": 0.5}]]
    lda = [*LDA, "ggeur.init", "closed_form", "data.splitter", "lda"]
    run = Run(config(*lda, *few))
    seen, truth = recorded(run), truth_of(run)
    assert list(seen.hits) == list(seen.log_losses) == list(seen.domains)
    sent = {k: int(upload.counts.sum()) for k, upload in seen.uploads.items()}
    assert {k: told.scored for k, told in seen.hits.items()} == sent
    assert {k: told.rows for k, told in seen.log_losses.items()} == sent
    assert any(told.rows > told.scored for told in seen.hits.values())
    chosen = seen.form.candidates()[seen.loss_query.candidates[0]]
    details = run.history.round0.closed_form.details
    assert chosen.shrinkage == details["shrinkage"]
    (found,) = audit_run(seen, truth, 60, ["A13"])
    told = f"the numbers of {len(sent)} clients contain no withheld row"
    assert told in found.note
    assert "answers after the last round were not attacked" in found.note


def test_of_secure_sums(config):
    run = Run(config(*LDA, *SUMS))
    seen = recorded(run)
    assert not seen.uploads
    assert not seen.updates
    assert not seen.trains
    assert seen.counts.tolist() == truth_of(run).totals.tolist()
    weight, bias = seen.head
    server = run.engine.server
    head = server.head_params(closed_form=True) * server.temperature
    assert server.temperature > 1
    assert torch.equal(torch.cat([weight.flatten(), bias]), head)
    assert seen.head_classes == tuple(range(12))


def test_one_client_alone_has_no_others_to_attack(config):
    run = Run(config())
    run.data = replace(run.data, clients=run.data.clients[:1])
    findings = audit_run(recorded(run), truth_of(run), attacks=["A3", "A8"])
    assert [one.passed for one in findings] == [None, None]


def test_rows_to_compare_with_are_needed(config):
    run = Run(config())
    clients = [replace(held, test=held.test.select([])) for held in run.data.clients]
    run.data = replace(run.data, clients=clients)
    with pytest.raises(GGEURError, match="no test rows"):
        truth_of(run)


# The command `audit`: its table, its file, its exit status.


SMALL = ["federate.client_num", "6", "ggeur.step1_size", "20", "ggeur.step2_size", "5"]
SMALL += ["data.splitter", "lds", "data.splitter_args", "[{'alpha': 0.1}]"]
SUMMED = [*SUMS, *LDA]


@pytest.fixture
def audit(quickstart, embeddings_folder, tmp_path, ggeur):
    """What is printed by an audit that ends with `status`, and audit.json if there is
    one."""

    def go(*words, status=0):
        base = ["audit", "--cfg", quickstart, "--seconds", PATIENCE, "--out"]
        base += [tmp_path / "out", "data.type", "embeddings@ggeur"]
        base += ["data.root", embeddings_folder, *SMALL]
        said = ggeur(*base, *words, status=status)
        files = sorted((tmp_path / "out").glob("**/audit.json"))
        content = json.loads(files[-1].read_text()) if files else None
        return said.out + said.err, content

    return go


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_time_limit_is_above_0(quickstart, capsys, seconds):
    with pytest.raises(SystemExit, match="2"):
        main(["audit", "--cfg", str(quickstart), "--seconds", seconds])
    assert "--seconds: must be above 0" in capsys.readouterr().err


def test_the_default_fails_and_says_by_what(audit):
    said, content = audit(status=3)
    assert "level rows: FAILED (" in said
    assert "no proof" in said
    assert content["passed"] is False
    failed = [f["attack"] for f in content["findings"] if f["passed"] is False]
    assert {"A2", "A7"} <= set(failed)
    assert len(content["findings"]) == 18
    assert "one lying client, level rows: undecided (not tried: A11)" in said
    assert content["verdicts"]["lying"]["outcome"] == "undecided"
    assert content["claims"] == []


def test_sums_pass_for_rows_and_fail_for_members(audit):
    said, content = audit(*SUMMED)
    assert content["passed"] is True
    assert "level rows: passed" in said
    assert "no proof" in said
    nothing = {one["attack"] for one in content["findings"] if one["tried"] is None}
    assert {"A1", "A2", "A3", "A4", "A6", "A7", "A8", "A9"} <= nothing
    said, content = audit(*SUMMED, "--level", "membership", status=3)
    assert content["passed"] is False
    assert "level membership: FAILED (by A10)" in said


SKEWED = ["data.splitter_args", "[{'alpha': 0.3}]", "federate.client_num", "3"]


def test_sums_promise_nothing_against_one_client_that_lies(audit):
    said, content = audit(*SUMMED, *SKEWED)
    assert "curious parties, each by itself, level rows: passed" in said
    assert "one lying client, level rows: FAILED (by A11)" in said
    assert content["claims"] == ["a curious server", "curious clients"]
    assert "claims to resist a curious server and curious clients" in said
    _, content = audit(*SUMMED, *SKEWED, "--adversary", "lying", status=3)
    assert content["passed"] is False


def test_what_was_not_tried_is_no_pass(audit):
    _, content = audit("--adversary", "lying", status=2)
    assert content["passed"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.root", "/nowhere"], "/nowhere"),
        (["ggeur.no_such_key", "1"], "no such key"),
    ],
)
def test_what_cannot_be_run_is_another_status(audit, words, said):
    told, _ = audit(*words, status=2)
    assert said in told
