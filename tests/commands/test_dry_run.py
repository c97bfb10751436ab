"""``ggeur --cfg FILE --dry-run``."""

from __future__ import annotations

import re

import pytest
from pictures import write_images

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data.encoders import ENCODERS, register_encoder


@pytest.fixture
def dry_run(config, tmp_path, capsys):
    """Dry runs of a small config with settings added; gives what is printed."""

    def go(*settings) -> str:
        path = tmp_path / "small.yaml"
        path.write_text(config("outdir", tmp_path / "exp").dump())
        before = sorted(tmp_path.rglob("*"))
        assert main(["--cfg", str(path), "--dry-run", *map(str, settings)]) == 0
        assert sorted(tmp_path.rglob("*")) == before
        return capsys.readouterr().out

    return go


def test_it_says_rows_bytes_memory_and_time(dry_run):
    said = dry_run()
    assert re.search(
        r"^client 1 \(art\): \d+ rows of \d+ classes to train on$", said, re.M
    )
    assert "ggeur.privacy.min_samples 5 withholds " in said
    for phase in (
        "statistics",
        "geometry",
        "prototypes",
        "prepare",
        "train",
        "evaluate",
    ):
        assert re.search(rf"^  {phase} +", said, re.M), phase
    assert re.search(r"^the run, 3 rounds, 3 scored +\S+ k?B +\S+ k?B$", said, re.M)
    assert "of ggeur.memory_limit 1 GB, sets stay in memory" in said
    assert re.search(r"^time: about .* a mini-batch\)$", said, re.M)


def test_it_says_how_long_heads_are_tried(dry_run):
    same = ["data.splitter", "iid", "data.splitter_args", "[]"]
    said = dry_run("ggeur.closed_form", "auto", *same)
    assert re.search(
        r"^time: .*\(round 0 .* s; of it .* s trying heads on left-out rows", said, re.M
    )


def test_many_clients_are_said_in_short(dry_run):
    said = dry_run("federate.client_num", 30, "ggeur.steps", "[]")
    line = r"^rows of a client: \d+ \(client \d+\) to \d+ \(client \d+\), median \d+$"
    assert re.search(line, said, re.M)
    assert "client 1 (" not in said.replace("(client 1)", "")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["ggeur.memory_limit", 100], "sets beyond this limit are drawn anew"),
        (
            ["ggeur.noise", "fresh", "ggeur.privacy.min_samples", 1],
            "sets are drawn anew in every round",
        ),
        (["ggeur.closed_form", "lda"], "the run, 0 rounds"),
    ],
)  # fmt: skip
def test_what_becomes_of_the_sets(dry_run, settings, said):
    assert said in dry_run(*settings)


def test_the_option_may_stand_last(quickstart, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--cfg", str(quickstart), "ggeur.steps", "[]", "--dry-run"]
    assert main(words) == 0
    assert "the run, 20 rounds" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


class TestImages:
    @pytest.fixture
    def settings(self, tmp_path):
        tree = write_images(tmp_path / "tree", per_class=12)
        return [
            "data.type", "image_folder@ggeur", "data.root", tree,
            "ggeur.encoder.name", "hog", "ggeur.encoder.batch_size", 4,
            "ggeur.encoder.cache", tmp_path / "cache", "ggeur.encoder.num_workers", 0,
            "federate.client_num", 2, "federate.total_round_num", 1,
        ]  # fmt: skip

    @pytest.mark.slow
    def test_those_that_are_not_embedded_are_counted(
        self, dry_run, settings, quickstart, capsys
    ):
        said = dry_run(*settings)
        assert said.startswith("72 of 72 images are not in the cache ")
        assert re.search(
            r"^embedding them takes about \S+ (s|min|h), estimated from one batch$",
            said,
            re.M,
        )
        assert "the run," not in said
        words = ["embed", "--cfg", str(quickstart), *map(str, settings)]
        assert main(words) == 0
        capsys.readouterr()
        assert "the run, 1 rounds" in dry_run(*settings)

    def test_no_weights_are_fetched(self, dry_run, settings, monkeypatch):
        name = "dry_run_far_away"
        monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS))

        def make(chosen, device):
            raise AssertionError("weights are fetched")

        register_encoder(name, stamp=lambda chosen: {"weights": None})(make)
        said = dry_run(*settings, "ggeur.encoder.name", name)
        assert said.startswith("72 of 72 images are not in the cache ")
        assert "a dry run downloads nothing" in said
