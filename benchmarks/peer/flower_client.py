"""The client app of `flower_simulation.py`, in plain torch."""

import functools

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch_training import linear, train
from work import Work

client_app = ClientApp()


@functools.cache
def kept(folder: str):
    """What an actor keeps: the rows, a model, the generator of orders."""
    work = Work(folder)
    torch.set_num_threads(1)
    rows = torch.tensor(work.features), torch.tensor(work.labels)
    order = torch.Generator().manual_seed(work.seed)
    return work, *rows, linear(work.weight, work.bias), order


@client_app.train()
def train_client(message, context):
    config = message.content["config"]
    work, features, labels, model, order = kept(config["folder"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=work.rate)
    k = config["client"]
    train(model, optimizer, features[k - 1], labels[k - 1], work.batch, order)
    records = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": labels.shape[1]}),
    }
    return Message(content=RecordDict(records), reply_to=message)
