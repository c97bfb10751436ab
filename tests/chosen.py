"""Federations of by_bytes whose head is in closed form."""

from dataclasses import replace

from by_bytes import Federation, make_client_data

from federatedscope_ggeur.federation import Client, MemoryBudget, Server
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.models import CLOSED_FORMS, ModelSettings


def chosen_federation(kind, min_samples=1, data=None, **settings):
    """Of 90 rows on four clients, unless there are `data`; no rounds of training."""
    data = data or make_client_data((20, 30, 25, 15))
    form = CLOSED_FORMS[kind](**settings)
    made = Federation(
        data, model=ModelSettings(closed_form=kind), min_samples=min_samples
    )
    settings = made.server.settings
    task = replace(settings.task, statistics=StatisticsForm("class", exact=True))
    of_client = replace(made.clients[1].settings, task=task, closed_form=form)
    made.clients = {
        k: Client(k, *held, of_client, MemoryBudget(1e9)) for k, held in data.items()
    }
    made.server = Server(
        {k: held[0] for k, held in data.items()},
        replace(settings, task=task, closed_form=form, total_rounds=0),
    )
    return made
