"""What the core knows of text features."""

from federatedscope_ggeur.extras import Manifest, Preparation

from .keys import ENSEMBLE, KEYS, OWN, TEXT_MODELS, ZEROSHOT, uses_text

_MODEL, _PREPARE = f"{__package__}.base", f"{__package__}.prepare"

MANIFEST = Manifest(
    keys=KEYS,
    parts=(_MODEL,),
    registers={
        "closed_form": {ZEROSHOT: f"{__package__}.zeroshot"},
        "models": {OWN: _MODEL, ENSEMBLE: _MODEL},
    },
    public={"register_text_model": _MODEL},
    formerly={"models.text": f"{__package__}.base"},
    registries=(TEXT_MODELS,),
    prepares=Preparation(
        _PREPARE,
        uses_text,
        "text features",
        "ggeur.text: the server's text features differ from the clients'; "
        "give the server their text.npz (data.root), or the same "
        "ggeur.encoder and ggeur.text.templates",
    ),
)
