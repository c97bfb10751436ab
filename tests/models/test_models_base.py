"""What a model of one's own gets from `Model`."""

import json

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.models import (
    LinearHead,
    MixtureHead,
    MLPHead,
    Model,
    OwnModels,
    bind_vector,
    head_bytes,
    load_vector,
    named_tensors,
    negative_variance,
    num_buffers,
    num_parameters,
    num_trainable,
    own_bytes,
    own_tensors,
    split_vector,
    to_vector,
    trainable_part,
)
from federatedscope_ggeur.models.vectors import norm_mask


class OwnHead(Model):
    """A linear layer on normalised embeddings."""

    def __init__(self, in_features, num_classes):
        super().__init__(in_features, num_classes)
        self.norm = nn.BatchNorm1d(in_features)
        self.classifier = nn.Linear(in_features, num_classes)

    def represent(self, features):
        return self.norm(features)

    def classify(self, representation):
        return self.classifier(representation)


@pytest.fixture
def head():
    torch.manual_seed(0)
    return OwnHead(5, 3).eval()


def test_it_is_a_model_of_embeddings(head):
    rows = torch.randn(4, 5)
    assert head.width == 5
    assert head.stage_widths == ()
    assert not head.takes_images
    assert head.prepare(rows, torch.Generator()) is rows
    assert head.norm_modules == [head.norm]
    assert int(head.norm_mask.sum()) == 20
    assert num_buffers(head) == 10


def test_it_has_no_stages(head):
    with head.stages_hooked(None):
        pass
    with (
        pytest.raises(ConfigError, match="OwnHead has no stages"),
        head.stages_hooked(lambda k, x: x),
    ):
        pass


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 30])
def test_rows_go_in_some_at_a_time(head, n):
    head.chunk_rows, sizes, rows = 8, [], torch.randn(n, 5)

    def run(x):
        sizes.append(len(x))
        return head(x)

    head.train()
    before = to_vector(head)
    found = head.in_chunks(run, rows)
    assert sum(sizes) == n
    assert max(sizes) <= 8
    assert head.training
    assert torch.equal(to_vector(head), before)
    assert not found.requires_grad
    head.eval()
    torch.testing.assert_close(found, head(rows))


def test_momentum_comes_back(head):
    head.norm.momentum = 0.3
    with head.frozen_statistics():
        assert head.norm.momentum == 0.0
    assert head.norm.momentum == 0.3


# The mixture head: its logits, its vector of any length, its file.


DIM, CLASSES = 3, 2
POINTS = torch.randn(7, DIM, generator=torch.Generator().manual_seed(0))


def mixture_head():
    generator = torch.Generator().manual_seed(1)
    weight, bias = (torch.randn(n, generator=generator) for n in ((5, DIM), (5,)))
    return MixtureHead.of_components(
        weight, bias, torch.tensor([0, 1, 0, 0, 1]), CLASSES
    )


def test_logits_are_log_sums_over_the_components_of_a_class():
    model = mixture_head()
    scores = (POINTS @ model.weight.T + model.bias).exp()
    wanted = torch.stack(
        [scores[:, [0, 2, 3]].sum(dim=1), scores[:, [1, 4]].sum(dim=1)], dim=1
    ).log()
    torch.testing.assert_close(model(POINTS), wanted)


def test_large_scores_stay_finite():
    model = mixture_head()
    assert torch.isfinite(model(1e6 * POINTS)).all()


def test_one_component_a_class_is_a_linear_head():
    linear = LinearHead(DIM, CLASSES).reset(torch.Generator().manual_seed(2))
    assert torch.equal(MixtureHead.of_linear(linear)(POINTS), linear(POINTS))


def test_it_takes_a_vector_of_any_number_of_components():
    model, empty = mixture_head(), MixtureHead(DIM, CLASSES)
    vector = to_vector(model)
    assert len(vector) == 5 * (DIM + 2) + 1  # and the scale
    assert torch.equal(empty.at(vector)(POINTS), model(POINTS))
    assert len(to_vector(empty)) == CLASSES * (DIM + 2) + 1
    load_vector(empty, vector)
    assert torch.equal(to_vector(empty), vector)


@pytest.mark.parametrize("size", [5 * (DIM + 2), DIM + 3, 0])
def test_other_vectors_are_refused(size):
    with pytest.raises(ConfigError, match=f"{size} parameters do not fit a mix"):
        MixtureHead(DIM, CLASSES).at(torch.zeros(size))


@pytest.mark.parametrize("lacks", ["", "scale"], ids=["", "before temperatures"])
def test_its_file_is_read_into_a_new_one(lacks):
    model, other = mixture_head(), MixtureHead(DIM, CLASSES)
    state = {k: v for k, v in model.state_dict().items() if k != lacks}
    other.load_state_dict(load(save(state)))
    assert torch.equal(other(POINTS), model(POINTS))


def test_it_is_not_trained():
    model = mixture_head()
    with pytest.raises(ConfigError, match="no last layer to train"):
        _ = model.classifier
    with pytest.raises(ConfigError, match="no last layer to train"):
        model.last_input(POINTS)
    assert not model.reset().weight.any()


# Clients' own models: what is kept of them, and the files of models.


def own_head(seed):
    return LinearHead(3, 2).reset(torch.Generator().manual_seed(seed))


def about(data):
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end])["__metadata__"]


def test_of_a_head_all_is_kept():
    model = own_head(0)
    own = own_tensors(model, to_vector(model), model.state_dict())
    assert own.keys() == model.state_dict().keys()


def test_each_row_is_by_the_model_of_its_number():
    shared = own_head(0)
    own = OwnModels(shared, {k: own_head(k).state_dict() for k in (1, 2)})
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(9))
    found = own.logits(rows, torch.tensor([2, 0, 1, 2, 0]))
    for row, k in enumerate([2, 0, 1, 2, 0]):
        assert torch.allclose(found[row], own_head(k)(rows)[row])
    assert torch.equal(own.logits(rows, torch.full((5,), 1)), own_head(1)(rows))
    assert own.logits(rows[:0], torch.zeros(0, dtype=torch.int64)).shape == (0, 2)
    assert torch.equal(shared.classifier.weight, own_head(0).classifier.weight)


def test_tensors_that_do_not_fit_are_named():
    wrong = {"classifier.weight": torch.ones(5, 5)}
    with pytest.raises(DataError, match="client 3: its own model does not fit"):
        OwnModels(own_head(0), {3: wrong}).of(3)


def test_the_files_say_whose_they_are_and_of_which_head():
    model, names = own_head(0), ["a", "b"]
    data = head_bytes(model, names, "an encoder")
    assert load(data).keys() == model.state_dict().keys()
    own = own_bytes({}, 7, "a domain", data, names, "an encoder")
    assert load(own) == {}
    said = about(own)
    assert {**about(data), "client": "7", "domain": "a domain"}.items() <= said.items()
    other = head_bytes(own_head(1), names, "an encoder")
    of_other = about(own_bytes({}, 7, "a domain", other, names, "an encoder"))
    assert of_other["of_head"] != said["of_head"]
    assert "of_head" not in about(own_bytes({}, 7, "", None, names, "an encoder"))


# A module's numbers as one vector: trainable ones, then running statistics.


def made_net():
    layers = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)
    return nn.Sequential(*layers)


@pytest.fixture
def net():
    torch.manual_seed(0)
    net = made_net()
    net(torch.randn(4, 1, 4, 4))  # which leaves running statistics
    return net


def test_parameters_come_first_and_running_statistics_behind(net):
    state = net.state_dict()
    wanted = [p.detach().flatten() for p in net.parameters()]
    wanted += [state["1.running_mean"], state["1.running_var"]]
    assert torch.equal(to_vector(net), torch.cat(wanted))
    assert num_trainable(net) == sum(p.numel() for p in net.parameters())
    assert num_buffers(net) == 4
    assert num_parameters(net) == num_trainable(net) + 4


def test_heads_keep_none():
    for head in (LinearHead(3, 2), MLPHead(3, 2, 4)):
        assert num_buffers(head) == 0
        assert num_parameters(head) == num_trainable(head) == len(to_vector(head))
        assert not norm_mask(head).any()


def test_a_bound_vector_follows_training(net):
    """Five steps with momentum on the vector are torch's own, statistics included."""
    vector = to_vector(net)
    twin = made_net()
    twin.load_state_dict(net.state_dict())
    bind_vector(net, vector)
    params = trainable_part(net, vector)
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    momentum = torch.zeros_like(params)
    for _ in range(5):
        x, y = torch.randn(6, 1, 4, 4), torch.randint(3, (6,))
        loss = nn.functional.cross_entropy(net(x), y)
        gradient = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            momentum.mul_(0.9).add_(torch.cat([g.flatten() for g in gradient]))
            params.sub_(0.1 * momentum)
        theirs.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
        theirs.step()
        torch.testing.assert_close(vector, to_vector(twin), rtol=0, atol=1e-6)


def test_loading_without_statistics_leaves_them(net):
    before = to_vector(net)
    load_vector(net, torch.zeros(num_trainable(net)))
    after = to_vector(net)
    assert not trainable_part(net, after).any()
    assert torch.equal(after[-4:], before[-4:])
    load_vector(net, before)
    assert torch.equal(to_vector(net), before)


def test_names_are_those_of_the_state_dict(net):
    vector = torch.arange(float(num_parameters(net)))
    named = named_tensors(net, vector)
    assert set(net.state_dict()) - set(named) == {"1.num_batches_tracked"}
    plain = made_net()
    plain.load_state_dict(named, strict=False)
    assert torch.equal(to_vector(plain), vector)
    assert set(named_tensors(net, trainable_part(net, vector))) == {
        name for name, _ in net.named_parameters()
    }


def test_parts_are_views(net):
    vector = torch.zeros(num_parameters(net))
    split_vector(net, vector)[-1].fill_(1)
    assert vector.sum() == 2


def test_the_mask_holds_what_norm_layers_hold(net):
    named = named_tensors(net, norm_mask(net))
    assert {name for name, mask in named.items() if mask.all()} == {
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
    }
    assert norm_mask(net).sum() == 8


def test_a_negative_variance_is_named(net):
    vector = to_vector(net)
    assert negative_variance(net, vector) == ""
    vector[-1] = -1e-3
    assert negative_variance(net, vector) == "1.running_var"
    assert negative_variance(LinearHead(3, 2), -torch.ones(8)) == ""
