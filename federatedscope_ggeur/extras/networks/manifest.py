"""What the core must know of networks."""

from federatedscope_ggeur.extras import Manifest

from .keys import KEYS, OF_METHODS, OWN

_MODEL = f"{__package__}.image_network"

MANIFEST = Manifest(
    keys=KEYS,
    parts=(_MODEL,),
    registers={
        "models": {OWN: _MODEL},
        "base_method": {
            name: f"{__package__}.methods.{name}" for name in ("fedbn", "silobn")
        },
        "augmentation": {name: f"{__package__}.methods.{name}" for name in OF_METHODS},
        "encoder.name": {"image": _MODEL},
    },
    public={"register_network": f"{__package__}.base"},
    formerly={"models.networks": f"{__package__}.base"},
)
