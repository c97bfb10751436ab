"""A short run of `digits_cnn` on the bundled digits as images, as KEY VALUE words."""

from pathlib import Path


def digits_words(cache: Path) -> list[str]:
    """Four domains, a client each; two rounds; BatchNorm and augmented images."""
    keys = {
        "data.type": "bundled_digits@ggeur",
        "data.splits": [0.3, 0.0, 0.1],
        "data.splitter": "domain",
        "data.splitter_args": [],
        "dataloader.batch_size": 32,
        "dataloader.drop_last": True,
        "federate.client_num": 4,
        "federate.total_round_num": 2,
        "train.optimizer.lr": 0.05,
        "ggeur.augmentation": "none",
        "ggeur.encoder.name": "image",
        "ggeur.encoder.image_size": 8,
        "ggeur.encoder.cache": cache,
        "ggeur.encoder.num_workers": 0,
        "ggeur.network.name": "digits_cnn",
        "ggeur.network.augment": "crop_flip",
    }
    return [str(part) for pair in keys.items() for part in pair]
