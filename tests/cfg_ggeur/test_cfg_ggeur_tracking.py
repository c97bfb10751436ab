"""What a run is called where it is tracked."""

from federatedscope_ggeur.cfg_ggeur.run_settings import (
    experiment_name,
    tracking_settings,
)


def test_the_name_is_the_one_given_or_made_of_the_main_settings(config):
    assert experiment_name(config("expname", "mine", "expname_tag", "a")) == "mine_a"
    made = experiment_name(config("expname", ""))
    assert made == "ggeur_ggeur_head_on_embeddings@ggeur_lr0.01_lstep1"


def test_without_trackers_nobody_is_told(config):
    settings = tracking_settings(config())
    assert not settings.wandb
    assert not settings.tensorboard
