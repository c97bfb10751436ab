"""FedFA+: identities, what travels, the server's step, and the threshold."""

import numpy as np
import pytest
import torch
from federations import federate
from image_federations import NORMS, begun, federate_images, make_image_data

from federatedscope_ggeur import methods
from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.extras.networks.methods.feature_statistics import (
    RunningStatistics,
    client_variances,
    decompose,
    modulated,
    soft_histogram,
    symmetric_divergence,
)
from federatedscope_ggeur.extras.networks.methods.fedfa_plus import FedFAPlus
from federatedscope_ggeur.extras.networks.methods.mixstyle import MixStyle

SENT = {
    "l": {"mu", "sigma", "rows"},
    "direct": {"mu", "sigma", "rows"},
    "plus": {"mu", "sigma", "rows", "histogram"},
    "h": {"histogram"},
    "c": set(), "c2": set(), "r": set(),
}  # fmt: skip
CHANNELS = (3, 2)


class Maps(torch.nn.Module):
    """What the server's side of the method asks of a model, and a client's layers."""

    stage_widths = CHANNELS

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))


def server(number=2):
    return methods.ServerContext(number, Maps(), {1: 1.0, 2: 1.0, 3: 1.0}, {}, 0)


def hooks_of(method, download=None, min_samples=1):
    """A client's hooks in a round for which the server has nothing new."""
    begun = {**method.initial_state(torch.zeros(1), server()), **(download or {})}
    context = methods.LocalContext(
        1, 2, Maps(), torch.zeros(1), begun, {}, {}, torch.tensor([20, 20]),
        min_samples, None, 0,
    )  # fmt: skip
    return method.local(context)


def outcome():
    return methods.LocalOutcome(
        torch.zeros(1), 1, torch.zeros(0, 4), torch.zeros(0).long()
    )


def maps(stage, rows=6, seed=0):
    generator = torch.Generator().manual_seed(100 * stage + seed)
    return torch.randn(rows, CHANNELS[stage], 4, 4, generator=generator)


class TestIdentities:
    @pytest.mark.slow
    @pytest.mark.parametrize("norm", NORMS)
    def test_probability_zero_is_fedavg_to_the_bit(self, norm):
        plain = federate_images(methods.FedAvg(), norm=norm).weights
        for variant in ("l", "r"):
            method = FedFAPlus(variant, probability=0.0)
            assert torch.equal(federate_images(method, norm=norm).weights, plain)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("variant", "rest"), [("h", methods.FedAvg()), ("plus", FedFAPlus("l"))]
    )
    def test_the_half_that_aligns_has_a_weight_and_begins_in_round_2(
        self, variant, rest
    ):
        plain = federate_images(rest).weights
        none, found = (
            federate_images(FedFAPlus(variant, weight=weight)).weights
            for weight in (0.0, 0.1)
        )
        assert torch.equal(none, plain)
        assert torch.equal(found[1], plain[1])
        assert not torch.equal(found[2], plain[2])

    def test_with_fedsam_both_passes_have_the_same_layers(self):
        """Were they drawn anew, the clients would send twice as many rows."""
        rows = {}
        for base in (methods.FedAvg(), methods.FedSAM(rho=0.1)):
            method = methods.Combined(base, FedFAPlus("l", probability=1.0))
            federation = begun(method)
            rows[base.name] = federation.train(1)[0].upload["augmentation.rows"]
        assert torch.equal(rows["fedavg"], rows["fedsam"])


class TestLayers:
    @pytest.mark.slow
    def test_the_layers_have_a_variant_s_spread(self):
        """Over many draws, of two rows whose means are far apart."""
        x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        x[1] += 3
        _, mean, _ = decompose(x)
        variance = mean.var(dim=0, unbiased=False)
        gamma = torch.tensor([0.5, 1.0, 1.5, 0.7, 1.3])
        wanted = {
            "l": (1 + gamma[:3]) * variance,
            "direct": (1 + gamma[:3]) * variance,
            "c": variance,
            "c2": 2 * variance,
            "r": torch.full((3,), 0.25),
        }
        for variant, spread in wanted.items():
            method = FedFAPlus(variant, probability=1.0)
            state = {"gamma_mu": gamma, "gamma_sigma": gamma}
            stage = hooks_of(method, download=state).stage
            drawn = torch.stack([decompose(stage(0, x))[1] for _ in range(4000)])
            found = (drawn - mean).square().mean(dim=(0, 1))
            torch.testing.assert_close(found, spread, rtol=0.06, atol=1e-5)

    def test_noise_scales_them(self):
        x = maps(0)
        _, mean, _ = decompose(x)
        moves = []
        for noise in (1.0, 3.0):
            method = FedFAPlus("l", probability=1.0, noise=noise)
            moves.append(decompose(hooks_of(method).stage(0, x))[1] - mean)
        torch.testing.assert_close(moves[1], 3 * moves[0], rtol=1e-3, atol=1e-5)

    def test_each_acts_with_the_probability_and_draws_its_own(self):
        stage = hooks_of(FedFAPlus("l", probability=0.3)).stage
        acted = [not torch.equal(stage(k, maps(k)), maps(k)) for k in (0, 1) * 500]
        assert np.mean(acted) == pytest.approx(0.3, abs=0.05)
        both = np.array(acted).reshape(-1, 2)
        assert (both.sum(axis=1) == 1).mean() > 0

    def test_the_probability_does_not_shift_the_noise(self):
        always = hooks_of(FedFAPlus("l", probability=1.0)).stage(0, maps(0))
        stage = hooks_of(FedFAPlus("l", probability=0.5)).stage
        found = maps(0)
        while torch.equal(found, maps(0)):
            found = stage(0, maps(0))
        assert torch.equal(found, always)

    def test_stages_that_are_not_chosen_stay(self):
        hooks = hooks_of(FedFAPlus("l", probability=1.0, stages=[2]))
        assert torch.equal(hooks.stage(0, maps(0)), maps(0))
        assert not torch.equal(hooks.stage(1, maps(1)), maps(1))
        upload, _ = hooks.finish(outcome())
        assert len(upload["mu"]) == CHANNELS[1]
        assert len(upload["rows"]) == 1

    def test_what_is_aligned_is_the_batch_after_the_layer(self):
        target = torch.full((CHANNELS[1], 8), 0.125)
        method = FedFAPlus(probability=1.0, weight=0.3)
        hooks = hooks_of(method, download={"histogram": target})
        *_, last = (hooks.stage(k, maps(k)) for k in (0, 1))
        found = soft_histogram(last.mean(dim=(2, 3)), 8, 0.01)
        wanted = 0.3 * symmetric_divergence(found, target).mean()
        torch.testing.assert_close(hooks.loss_term(None, None), wanted)


class TestStatistics:
    @pytest.mark.parametrize("debias", [True, False])
    def test_they_are_the_running_means(self, debias):
        method = FedFAPlus("l", probability=1.0, momentum=0.9, debias=debias)
        hooks = hooks_of(method)
        running = [RunningStatistics(c, 0.9) for c in CHANNELS]
        for batch in range(5):
            for k, one in enumerate(running):
                x = maps(k, seed=batch)
                hooks.stage(k, x)
                _, mean, std = decompose(x)
                one.add(mean.mean(dim=0), std.mean(dim=0), len(x))
        upload, state = hooks.finish(outcome())
        assert not state
        assert upload["rows"].tolist() == [30, 30]
        told = [one.debiased if debias else one.biased for one in running]
        for name, parts in zip(("mu", "sigma"), zip(*told)):
            torch.testing.assert_close(upload[name], torch.cat(parts))

    def test_fewer_rows_than_the_threshold_are_withheld(self):
        method = FedFAPlus("l", probability=1.0)
        hooks = hooks_of(method, min_samples=5)
        hooks.stage(0, maps(0, rows=5))
        hooks.stage(1, maps(1, rows=4))
        upload, _ = hooks.finish(outcome())
        assert upload["rows"].tolist() == [5, 0]
        sent = upload["mu"].split(CHANNELS)
        assert sent[0].all()
        assert not sent[1].any()
        assert not upload["sigma"].split(CHANNELS)[1].any()

    def test_no_row_is_more_of_them_than_the_threshold_allows(self):
        """Without momentum they are the last batch's alone."""
        method = FedFAPlus("l", probability=1.0, momentum=0.0)
        for last, told in ((2, False), (5, True)):
            hooks = hooks_of(method, min_samples=5)
            hooks.stage(0, maps(0, rows=20))
            hooks.stage(0, maps(0, rows=last))
            upload, _ = hooks.finish(outcome())
            assert bool(upload["rows"][0]) is told


class TestServer:
    def updates(self, sent):
        names = ("mu", "sigma", "rows")
        return [
            methods.Update(
                k, 1.0, torch.zeros(1), 1, dict(zip(names, map(torch.tensor, each)))
            )
            for k, each in enumerate(sent, start=1)
        ]

    sent = (
        ([1.0, 2.0, 3.0, 0.5, 0.0], [1.0, 1.0, 2.0, 1.0, 1.0], [9, 9]),
        ([1.5, 2.0, 1.0, 0.5, 4.0], [1.0, 3.0, 2.0, 1.0, 2.0], [9, 0]),
        ([0.0, 0.0, 3.0, 0.5, 2.0], [2.0, 1.0, 2.0, 1.0, 2.0], [9, 9]),
    )

    @pytest.mark.parametrize("variant", ["l", "direct"])
    def test_gamma_is_worked_out_stage_by_stage(self, variant):
        method = FedFAPlus(variant)
        state = method.initial_state(torch.zeros(1), server())
        assert state["gamma_mu"].tolist() == [1.0] * 5
        _, state = method.step(torch.zeros(1), self.updates(self.sent), state, server())
        for row, name in enumerate(("gamma_mu", "gamma_sigma")):
            for k, part in ((0, slice(0, 3)), (1, slice(3, 5))):
                told = [each[row][part] for each in self.sent if each[2][k]]
                s = client_variances([torch.tensor(each) for each in told])
                wanted = s if variant == "direct" else modulated(s)
                torch.testing.assert_close(state[name][part], wanted.float())

    def test_fewer_than_two_clients_leave_it_as_it_was(self):
        method = FedFAPlus("l")
        first = method.initial_state(torch.zeros(1), server())
        _, kept = method.step(torch.zeros(1), self.updates(self.sent), first, server())
        alone = self.updates(self.sent[:1])
        _, after = method.step(torch.zeros(1), alone, kept, server())
        for name in ("gamma_mu", "gamma_sigma"):
            assert torch.equal(after[name], kept[name])
            assert not torch.equal(after[name], first[name])

    def test_the_histogram_is_the_plain_mean_of_those_that_were_sent(self):
        method = FedFAPlus("h", bins=3)
        state = method.initial_state(torch.zeros(1), server())
        rows = [[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0.0, 0.0, 0.0]]
        updates = [
            methods.Update(
                k, 10.0 * k, torch.zeros(1), 1, {"histogram": torch.tensor([r, r])}
            )
            for k, r in enumerate(rows, start=1)
        ]
        _, state = method.step(torch.zeros(1), updates, state, server())
        wanted = torch.tensor([[0.3, 0.35, 0.35]] * 2)
        torch.testing.assert_close(state["histogram"], wanted)
        _, kept = method.step(torch.zeros(1), updates[2:], state, server())
        assert torch.equal(kept["histogram"], state["histogram"])


class TestWhatTravels:
    @pytest.mark.parametrize("variant", SENT)
    def test_no_more_than_the_variant_needs(self, variant):
        federation = begun(FedFAPlus(variant))
        updates = federation.train(1)
        for update in updates:
            assert set(update.upload) == SENT[variant]
        federation.step(1, updates)
        received = federation.send(federation.broadcast(2)).download
        names = {"gamma_mu", "gamma_sigma", "histogram"}
        learns, aligns = "mu" in SENT[variant], "histogram" in SENT[variant]
        kept = {n for n in names if (aligns if n == "histogram" else learns)}
        assert set(received) == kept
        assert not any(client.state for client in federation.clients.values())

    def test_the_histogram_is_of_all_own_rows_after_training_without_layers(self):
        method = FedFAPlus(probability=1.0)
        federation = begun(method)
        for update in federation.train(1):
            client = federation.clients[update.client]
            last = len(client.model.stage_widths) - 1
            found = {}

            def keep(stage, x, found=found):
                found[stage] = x.mean(dim=(2, 3))
                return x

            frozen = client.model.at(update.params)
            with torch.no_grad(), frozen.stages_hooked(keep):
                frozen.represent(frozen.prepare(client.features))
            wanted = soft_histogram(found[last], 8, 0.01)
            torch.testing.assert_close(update.upload["histogram"], wanted)

    def test_several_stages_can_be_aligned(self):
        method = FedFAPlus("h", align_stages=[1, 3], bins=5)
        federation = federate_images(method, rounds=2)
        widths = federation.clients[1].model.stage_widths
        shape = (widths[0] + widths[2], 5)
        assert federation.server.method_state["histogram"].shape == shape

    def test_a_client_below_the_threshold_sends_zeros_and_does_not_count(self):
        method = FedFAPlus()
        federations = [
            begun(method, make_image_data(sizes), min_samples=5)
            for sizes in ((20, 24), (20, 24, 4))
        ]
        few = federations[1].train(1)[2]
        assert not any(tensor.any() for tensor in few.upload.values())
        for federation in federations:
            federation.step(1, federation.train(1))
        one, other = (f.server.method_state for f in federations)
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("mu", lambda t: t.fill_(2e15), r"'mu' must lie within \+-1e\+15"),
        ("sigma", lambda t: t.fill_(2e15), r"'sigma' must lie within \+-1e\+15"),
        ("sigma", lambda t: t[:1].fill_(-0.1), "'sigma' must not be negative"),
        ("rows", lambda t: t.fill_(-1), "'rows' must lie in"),
        ("histogram", lambda t: t[:1].fill_(-0.1), r"'histogram' must lie in 0\.\.1"),
        ("histogram", lambda t: t.fill_(0.5), "'histogram' must sum to 1"),
    ],
)
def test_an_upload_that_cannot_be_is_refused(name, change, problem):
    federation = begun(FedFAPlus())
    update = federation.train(1)[0]
    change(update.upload[name])
    with pytest.raises(MessageError, match=f"client 1 .*{problem}"):
        federation.step(1, [update], [1])


class TestSettings:
    @pytest.mark.parametrize("method", [FedFAPlus(), MixStyle()])
    def test_a_head_on_embeddings_is_refused(self, method):
        said = rf"{method.name}.*acts on the stages of a network, but .* has none"
        with pytest.raises(ConfigError, match=said):
            federate(method)

    @pytest.mark.parametrize("field", ["stages", "align_stages"])
    def test_a_stage_that_the_network_lacks_is_refused(self, field):
        with pytest.raises(ConfigError, match=rf"{field} \[1, 9\].*3 stages"):
            begun(FedFAPlus(**{field: [1, 9]}))

    def test_settings_without_effect_are_told(self):
        defaults = {key.name: key.read(key.default) for key in FedFAPlus.SETTINGS}
        for variant, changed, told in (
            ("h", {"stages": [1], "bins": 9, "momentum": 0.5}, {"stages", "momentum"}),
            ("l", {"stages": [1], "bins": 9}, {"bins"}),
            ("r", {"debias": False, "weight": 1.0}, {"debias", "weight"}),
            ("plus", {"stages": [1], "bins": 9, "debias": False}, set()),
        ):
            settings = {**defaults, "variant": variant, **changed}
            assert {name for name, _ in FedFAPlus.setting_notes(settings)} == told
