"""Short runs in which every client has a model of its own, and what `predict` scores.

A network of two rounds on the bundled digits, a client a domain; the test rows of each
client become image files of the same pixels.
"""

from collections.abc import Callable
from pathlib import Path

from digits_network import digits_words
from PIL import Image

from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.predictor.predictor import Predictor

#: A method of a user's: a client scores what lies between the global model and its own.
MODULE = """\
from federatedscope_ggeur.methods import LocalHooks, Method, register_method


@register_method("halfway")
class Halfway(Method):
    keeps_state = True

    def local(self, context):
        def finish(outcome):
            return {}, {"own": outcome.weights.cpu().clone()}

        return LocalHooks(finish=finish)

    def eval_params(self, context):
        if "own" not in context.state:
            return context.weights
        return (context.weights + context.state["own"]) / 2
"""
METHODS = ("fedbn", "silobn", "local", "halfway")


def write_config(folder: Path, quickstart: Path) -> Path:
    """The quickstart with the user's module beside it."""
    (folder / "halfway_of_a_user.py").write_text(MODULE)
    path = folder / "own.yaml"
    path.write_text(quickstart.read_text())
    return path


def own_words(method: str, cache: Path) -> list[str]:
    more = ["ggeur.base_method", method, "train.local_update_steps", "3"]
    if method == "halfway":
        more += ["ggeur.plugins", "['halfway_of_a_user']"]
    return [*digits_words(cache), *more]


def write_tests(data: FederatedData, folder: Path) -> dict[int, list[Path]]:
    """Each client's test rows as image files, in a folder for each."""
    files = {}
    for client in data.clients:
        place = folder / f"client_{client.number}"
        place.mkdir(parents=True)
        channels, height, width = client.test.image_shape
        pixels = client.test.features.view(-1, channels, height, width)
        files[client.number] = [place / f"{row:04d}.png" for row in range(len(pixels))]
        for path, image in zip(files[client.number], pixels.permute(0, 2, 3, 1)):
            Image.fromarray(image.squeeze(-1).numpy()).save(path)
    return files


def accuracy(
    data: FederatedData,
    files: dict[int, list[Path]],
    folder_of: Callable[[int], Path],
    whose: Callable[[int], int] = lambda number: number,
) -> dict[str, float]:
    """Of each domain, its clients' test rows by the model `whose` of each client, from
    the run folder of it."""
    hits: dict[str, int] = {}
    rows: dict[str, int] = {}
    for client in data.clients:
        paths = list(map(str, files[client.number]))
        predictor = Predictor(folder_of(client.number))
        found = predictor.predict(paths, clients=whose(client.number))
        named = [one.classes[0][0] for one in found]
        held = [data.class_names[c] for c in client.test.labels.tolist()]
        right = sum(one == other for one, other in zip(named, held))
        hits[client.domain] = hits.get(client.domain, 0) + right
        rows[client.domain] = rows.get(client.domain, 0) + len(held)
    return {domain: hits[domain] / rows[domain] for domain in hits}
