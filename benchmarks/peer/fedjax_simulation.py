"""fedjax: its federated averaging, compiled for one client after another."""

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from work import given

work = given()


def loss(params, batch, rng):
    logs = jax.nn.log_softmax(batch["x"] @ params["weight"].T + params["bias"])
    return -jnp.take_along_axis(logs, batch["y"][:, None], axis=1).mean()


algorithm = fed_avg.federated_averaging(
    jax.grad(loss),
    fedjax.optimizers.sgd(work.rate),
    fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(work.batch, num_epochs=1),
)
clients = [
    fedjax.ClientDataset({"x": np.asarray(x), "y": np.asarray(y)})
    for x, y in zip(work.features, work.labels)
]
state = algorithm.init({"weight": jnp.array(work.weight), "bias": jnp.array(work.bias)})
key = jax.random.PRNGKey(work.seed)  # nothing is drawn by it
for number, drawn in enumerate(work.schedule, 1):
    state, _ = algorithm.apply(state, [(k, clients[k - 1], key) for k in drawn])
    jax.block_until_ready(state.params)
    work.after_round(number)
head = {name: np.asarray(values) for name, values in state.params.items()}
work.finish(head["weight"], head["bias"], "fedjax", "jax")
