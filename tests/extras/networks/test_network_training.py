"""`fit` and the roles on networks, beside plain torch loops."""

import copy
import sys
from dataclasses import replace

import pytest
import torch
from by_bytes import CLASSES, eval_params_of
from digits_network import digits_words
from elsewhere import GPU
from federations import train_plainly
from image_federations import (
    RATE,
    SIZES,
    begun,
    federation,
    images,
    make_image_data,
    make_model,
)
from outcomes import backwards, outcome, restored
from safetensors.torch import load, save
from torch.nn import functional as F

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.extras.networks.architectures.digits_cnn import DigitsCNN
from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings
from federatedscope_ggeur.federation.client import check_rows
from federatedscope_ggeur.federation.exchanges.training.exchange import TRAIN
from federatedscope_ggeur.federation.exchanges.training.fit import (
    fit,
    mean_running_statistics,
)
from federatedscope_ggeur.federation.exchanges.training.messages import ClientUpdate
from federatedscope_ggeur.federation.settings import check_batches
from federatedscope_ggeur.methods import METHODS, LocalHooks, Update, build_method
from federatedscope_ggeur.models import (
    CPU,
    ModelSettings,
    OwnModels,
    build_model,
    num_buffers,
    num_trainable,
    own_tensors,
    put_last_layer,
    take_last_layer,
    to_vector,
    trainable_part,
)
from federatedscope_ggeur.rng import torch_generator


def plain_loss(model, pictures, labels):
    return F.cross_entropy(model.network(pictures), labels)


class TestFit:
    @pytest.mark.parametrize("norm", ["batch", "group", "none"])
    @pytest.mark.parametrize("optimizer", [RATE, OptimizerSettings("Adam", 1e-3)])
    def test_three_steps_are_torchs(self, norm, optimizer):
        model, (rows, labels) = make_model(norm=norm), images(20, seed=2)
        start = to_vector(model)
        settings = TrainingSettings(optimizer, 3, "epoch", 1000, shuffle=False)
        batch = ((rows / 255 - 0.5) / 0.5).view(-1, 1, 8, 8), labels
        wanted = train_plainly(model, start.clone(), [batch] * 3, optimizer, plain_loss)
        result = fit(model, start, rows, labels, settings, seed=0)
        torch.testing.assert_close(result.weights, wanted, rtol=0, atol=2e-6)
        assert torch.equal(result.params, result.weights[: num_trainable(model)])
        assert result.steps == 3

    def test_draws_of_the_augmentation_are_its_own(self):
        """It depends on the seed alone, and shifts no other draw."""
        (rows, labels), seen = images(40), []
        model = make_model(augment="crop_flip")

        def note(x, y):
            seen.append((x.clone(), y.clone()))
            return x

        settings = TrainingSettings(RATE, 1, "epoch", 16)
        fit(model, to_vector(model), rows, labels, settings, 7, LocalHooks(note))
        order = torch.randperm(40, generator=torch_generator(7, "order"))
        generator = torch_generator(7, "augment")
        for (x, y), batch in zip(seen, order.split(16)):
            assert torch.equal(y, labels[batch])
            assert torch.equal(x, model.prepare(rows[batch], generator))

    def test_a_perturbed_gradient_is_that_elsewhere(self):
        """Its step from w is that from w + e; dropout alike."""
        head = build_model(3, CLASSES, ModelSettings(5, dropout=0.5))
        start = to_vector(head.reset(torch.Generator().manual_seed(1)))
        rows = torch.randn(10, 3), torch.randint(CLASSES, (10,))
        settings = TrainingSettings(OptimizerSettings("SGD", 0.1), 1, "epoch", 10)
        e = 0.1 * torch.randn(len(start))

        def moved(at, hooks):
            return fit(head, at, *rows, settings, 0, hooks).params - at

        found = moved(start, LocalHooks(perturb=lambda params, gradient: e))
        wanted = moved(start + e, LocalHooks())
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)

    def test_a_second_gradient_leaves_statistics(self):
        model, rows = make_model(), images(20)
        start = to_vector(model)
        one = TrainingSettings(RATE, 1, "epoch", 1000)
        hooks = LocalHooks(perturb=lambda params, gradient: torch.zeros_like(params))
        plain = fit(model, start, *rows, one, 0).weights
        assert torch.equal(fit(model, start, *rows, one, 0, hooks).weights, plain)


@pytest.mark.parametrize("name", METHODS)
def test_every_base_method_trains_a_network_and_statistics_are_the_mean(name):
    part = METHODS[name]
    method = part(mu=0.1) if name == "fedprox" else part()
    if method.model_problem(make_model()):
        pytest.skip(f"{name} is not for this network")
    run = begun(method, training=TrainingSettings(RATE, 2, "batch", 7))
    model, server = run.server.model, run.server
    size = num_trainable(model)
    for number in (1, 2):
        broadcast = run.send(run.broadcast(number))
        updates = [run.fit(k, broadcast) for k in sorted(run.clients)]
        run.training.step(number, updates)
        if method.federated:
            sent = zip(SIZES, (u.params[size:].double() for u in updates))
            wanted = sum(n / sum(SIZES) * own for n, own in sent).float()
            torch.testing.assert_close(server.params[size:], wanted, rtol=1e-6, atol=0)
            # They are in the module for methods that run it.
            assert torch.equal(to_vector(server.model)[size:], server.params[size:])
    for k, client in run.clients.items():
        own = eval_params_of(client, broadcast)
        assert own.shape == server.params.shape, k
        assert own.isfinite().all()
    if method.federated:
        now, before = server.params, broadcast.params
        assert not torch.equal(
            trainable_part(model, now), trainable_part(model, before)
        )


def test_a_batch_of_one_row_is_refused_at_the_start():
    run = federation(data=make_image_data((20, 33)))
    said = r"client 2: with 33 rows .*batch_size.* 8.*drop_last True"
    with pytest.raises(ConfigError, match=said):
        run.round0()


def test_an_update_of_a_negative_variance_or_without_statistics_is_refused():
    run = begun(None)
    server, fine = run.server, run.train(1)[0]
    negative = fine.params.clone()
    negative[-1] = -1e-6
    for params, said in (
        (negative, "'stage3.norm.running_var' has negative variances"),
        (trainable_part(server.model, fine.params), rf"\({len(fine.params)}\)"),
    ):
        with pytest.raises(MessageError, match=f"client 1 .*{said}"):
            run.validated(TRAIN, ClientUpdate(1, 1, params, 3), 1)
    assert run.validated(TRAIN, fine, 1).steps == fine.steps


def test_statistics_stay_where_nobody_has_rows():
    model = make_model()
    before, q = to_vector(model), num_buffers(model)
    of_no_rows = [Update(1, 0.0, torch.ones(len(before)), 1)]
    without = [Update(1, 4.0, torch.zeros(0), 1)]  # it kept its weights
    for sent in ([], of_no_rows, without):
        assert torch.equal(mean_running_statistics(model, before, sent), before[-q:])


HEAD = build_model(64, 3, ModelSettings())


def test_pixels_are_for_networks_and_embeddings_for_heads():
    pixels, embeddings = torch.zeros(2, 64, dtype=torch.uint8), torch.zeros(2, 64)
    check_rows(make_model(), pixels)
    check_rows(HEAD, embeddings)
    with pytest.raises(ConfigError, match=r"pixels: set ggeur\.network\.name"):
        check_rows(HEAD, pixels)
    with pytest.raises(ConfigError, match=r"data are embeddings. .*set .*encoder.name"):
        check_rows(make_model(), embeddings)


@pytest.mark.parametrize("steps", [("epoch", 1), ("batch", 4), ("batch", 5)])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("rows", "size"), [(33, 8), (32, 8), (34, 8), (1, 8), (0, 8)])
def test_no_batch_of_one_row(rows, size, drop_last, steps):
    unit, amount = steps
    training = TrainingSettings(
        *(OptimizerSettings("SGD", 0.1), amount, unit, size, True, drop_last)
    )
    for model in (HEAD, make_model(norm="group"), make_model(norm="none")):
        check_batches(model, training, rows, client=7)
    taken = amount if unit == "batch" else rows // size + 1
    if rows % size != 1 or drop_last or taken <= rows // size:
        check_batches(make_model(), training, rows, client=7)
        return
    with pytest.raises(ConfigError, match=rf"client 7: with {rows} rows and .*{size},"):
        check_batches(make_model(), training, rows, client=7)


@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_of_more_than_one_row(drop_last):
    training = TrainingSettings(batch_size=1, drop_last=drop_last)
    with pytest.raises(ConfigError, match="client 7: with 5 rows"):
        check_batches(make_model(), training, 5, client=7)


# Neither the order of clients, nor processes, nor a stop changes a bit of a run.


#: Of a network with running statistics.
NETWORKS = {
    "fedbn": ["ggeur.base_method", "fedbn"],
    "fedfa_plus": [
        "ggeur.augmentation", "fedfa_plus", "ggeur.fedfa_plus.probability", 1.0,
    ],
    "fedpg": [
        "ggeur.augmentation", "fedpg", "ggeur.fedpg.images_per_class", 3,
        "ggeur.fedpg.noise_dim", 4, "ggeur.fedpg.steps", 3,
        "ggeur.fedpg.generator_batch", 8,
        "federate.sample_client_num", 2,
    ],
}  # fmt: skip


@pytest.fixture(params=NETWORKS)
def made(request, quickstart, tmp_path):
    """The config of a run of the table, with further settings."""
    own = [*digits_words(tmp_path / "cache"), *NETWORKS[request.param]]
    return lambda *more: load_config(quickstart, [str(part) for part in (*own, *more)])


@pytest.mark.slow
def test_in_another_order_in_two_processes_and_after_a_stop(made, tmp_path):
    whole = outcome(made())
    assert outcome(made(), order=backwards) == whole
    if sys.platform == "linux":  # processes are forked
        assert outcome(made(), workers=2) == whole
    assert restored(made, tmp_path / "point", 1)[:3] == whole[:3]


# Training and scoring of networks on a device: the numbers of the CPU.
#
# Where there is no GPU, one that is not there stands in (elsewhere.py).


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "augment"),
    [
        *(("fedavg", a) for a in ("crop_flip", "flip_rotate", "resized_crop")),
        *((n, "none") for n in ("moon", "fedntd", "fedproto", "fedbn")),
    ],
)
def test_rounds_of_networks_are_those_of_the_cpu(request, name, augment):
    def after(device):
        training = TrainingSettings(RATE, 1, "epoch", 7, device=device)
        run = federation(METHODS[name](), augment=augment, training=training)
        found = run.run(2)[-1]
        assert all(
            t.device == CPU
            for client in run.clients.values()
            for state in client.states.values()
            for t in state.values()
        )
        return found

    here = after(CPU)
    request.getfixturevalue("gpu")
    torch.testing.assert_close(after(GPU), here, rtol=0, atol=1e-5)


SLOW = pytest.mark.slow
WAITING = [
    *(("", augment, {}) for augment in ("crop_flip", "flip_rotate", "resized_crop")),
    *((name, "none", {"probability": 1.0}) for name in ("fedfa_plus", "mixstyle")),
    ("fedpg", "none", {"source": "noise", "images_per_class": 8}),
]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the stand-in counts waits")
@pytest.mark.parametrize(
    ("name", "augment", "settings"),
    [("", "none", {}), *(pytest.param(*case, marks=SLOW) for case in WAITING)],
)
def test_nothing_waits_for_a_gpu_within_an_epoch(gpu, name, augment, settings):
    """More mini-batches need no more copies that wait, and read no numbers."""

    def waits(batches):
        training = TrainingSettings(RATE, batches, "batch", 4, device=GPU)
        method = build_method("fedavg", name or "none", settings)
        run = federation(method, augment=augment, training=training)
        run.run(1)  # some methods begin with what the first round has made
        before = len(gpu.waits)
        run.run(1)
        return len(gpu.waits) - before

    assert waits(2) == waits(1)


@pytest.mark.slow
@pytest.mark.parametrize("free", [1, 10**9])
def test_images_that_do_not_fit_stay_in_main_memory(free, gpu, monkeypatch, caplog):
    """The run says so, and the weights are the same."""
    monkeypatch.setattr(f"{fit.__module__}.free_memory", lambda device: free)
    training = TrainingSettings(RATE, 2, "epoch", 7, device=GPU)
    run = federation(METHODS["fedproto"](), augment="crop_flip", training=training)
    found = run.run(1)[-1]
    kept = [client.kept_set for client in run.clients.values()]
    assert {s.features.device for s in kept} == {CPU if free == 1 else GPU}
    assert ("stay in main memory" in caplog.text) == (free == 1)
    here = replace(training, device=CPU)
    other = federation(METHODS["fedproto"](), augment="crop_flip", training=here)
    torch.testing.assert_close(found, other.run(1)[-1], rtol=0, atol=1e-5)


# `ImageNetwork`: pixels in, chunks, stage hooks, frozen statistics, state dict.


class TestPrepare:
    MEAN, STD = (0.1, 0.4, 0.6), (0.2, 0.5, 0.9)

    def test_by_channel(self):
        model = make_model(192, mean=self.MEAN, std=self.STD)
        rows = images(5, dim=192)[0]
        mean, std = (torch.tensor(v)[:, None] for v in (self.MEAN, self.STD))
        wanted = (rows.view(5, 3, 64) / 255 - mean) / std
        found = model.prepare(rows)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted.view(5, -1))
        torch.testing.assert_close(model.prepare(rows / 255), found)

    def test_one_channel_takes_the_means(self):
        model = make_model(mean=(0.1, 0.4, 0.7), std=(0.2, 0.4, 0.6))
        rows = images(3)[0]
        torch.testing.assert_close(model.prepare(rows), (rows / 255 - 0.4) / 0.4)

    def test_rows_are_left_as_they_are(self):
        model = make_model(augment="crop_flip")
        for rows in (images(3)[0], images(3)[0] / 255):
            copied = rows.clone()
            model.prepare(rows, torch.Generator())
            assert torch.equal(rows, copied)

    def test_no_draws_without_a_generator(self):
        rows, model = images(3)[0], make_model(augment="crop_flip")
        assert torch.equal(model.prepare(rows), make_model().prepare(rows))

    def test_of_no_rows(self):
        assert make_model().prepare(images(0)[0]).shape == (0, 64)
        augmented = make_model(augment="crop_flip")
        assert augmented.prepare(images(0)[0], torch.Generator()).shape == (0, 64)


class TestPrecision:
    def test_bf16_has_about_two_digits_and_gives_float32(self):
        model, other = make_model().eval(), make_model(precision="bf16").eval()
        rows = model.prepare(images(16)[0])
        for part in ("represent", "last_input", "forward"):
            exact, found = getattr(model, part)(rows), getattr(other, part)(rows)
            assert found.dtype == torch.float32
            assert 0 < (found - exact).norm() < 0.02 * exact.norm()

    def test_hooks_and_gradients_are_float32(self):
        model, seen = make_model(precision="bf16").train(), set()

        def see(k, stage_map):
            seen.add((stage_map.dtype, (torch.eye(2) @ torch.eye(2)).dtype))
            return stage_map

        into = torch.zeros(num_trainable(model))
        with model.stages_hooked(see):
            model.gradient_accumulator(into, 0.0)(
                model.prepare(images(8)[0]), torch.arange(8) % 4
            )
        assert seen == {(torch.float32, torch.float32)}
        assert into.dtype == torch.float32
        assert into.any()


def test_hooks_act_on_every_stage_and_are_gone_afterwards():
    model = make_model().eval()
    rows = model.prepare(images(4)[0])
    plain, seen = model(rows), []

    def double(k, stage_map):
        seen.append((k, tuple(stage_map.shape[1:])))
        return 2 * stage_map if k == 2 else stage_map

    with model.stages_hooked(double):
        hooked = model.represent(rows)
    assert seen == [(0, (16, 8, 8)), (1, (32, 4, 4)), (2, (64, 4, 4))]
    torch.testing.assert_close(hooked, 2 * model.represent(rows))
    assert torch.equal(model(rows), plain)
    with pytest.raises(ZeroDivisionError), model.stages_hooked(double):
        raise ZeroDivisionError
    assert torch.equal(model(rows), plain)


def test_a_copy_at_other_weights():
    model = make_model()
    vector = torch.rand(len(to_vector(model)))
    other = model.at(vector)
    assert torch.equal(to_vector(other), vector)
    assert not other.training
    assert not any(p.requires_grad for p in other.parameters())
    params = vector[: num_trainable(model)]
    bare = model.at(params)
    assert torch.equal(to_vector(bare)[: len(params)], params)
    assert torch.equal(to_vector(bare)[len(params) :], to_vector(model)[len(params) :])


def test_its_file_loads_into_plain_torch():
    model = make_model().eval()
    plain = DigitsCNN(1, 4).eval()
    plain.load_state_dict(load(save(model.state_dict())), strict=False)
    rows = model.prepare(images(3)[0])
    assert torch.equal(plain(rows.view(3, 1, 8, 8)), model(rows))
    again = copy.deepcopy(model).reset(torch.Generator().manual_seed(9))
    again.load_state_dict(plain.state_dict())
    assert torch.equal(to_vector(again), to_vector(model))


def test_the_last_layer_is_taken_and_put_back():
    model = make_model()
    vector = to_vector(model)
    last = take_last_layer(model, vector, [2, 0])
    weight, bias = model.classifier.weight, model.classifier.bias
    assert torch.equal(last, torch.cat([weight[[2, 0]].flatten(), bias[[2, 0]]]))
    changed = put_last_layer(model, vector, [2, 0], last + 1)
    assert int((changed != vector).sum()) == len(last)


# Clients' own networks: what their files keep.


def test_of_a_network_what_differs_is_kept():
    model = make_model()
    params, shared = to_vector(model), model.state_dict()
    assert own_tensors(model, params, shared) == {}
    params[model.norm_mask] += 1
    own = own_tensors(model, params, shared)
    assert own
    assert own.keys() < shared.keys()
    assert all(".norm." in name for name in own)
    assert all(torch.equal(own[name], shared[name] + 1) for name in own)
    whole = own_tensors(model, params, None)
    assert whole.keys() == shared.keys()


def test_a_network_takes_the_shared_one_s_tensors_for_the_rest():
    model = make_model()
    params = to_vector(model)
    params[model.norm_mask] += 1
    own = OwnModels(model, {4: own_tensors(model, params, model.state_dict())})
    assert torch.equal(to_vector(own.of(4)), params)
    rows = images(6)[0]
    found = own.logits(rows, torch.full((6,), 4))
    assert torch.equal(found, model.at(params).in_chunks(own.of(4), rows))
