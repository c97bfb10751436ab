"""A plain loop in torch: no messages, no records, nothing but the arithmetic."""

import torch
from torch_training import linear, train
from work import given

work = given()
torch.set_num_threads(1)
order = torch.Generator().manual_seed(work.seed)
features, labels = torch.tensor(work.features), torch.tensor(work.labels)
model = linear(work.weight, work.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=work.rate)
average = [p.detach().clone() for p in model.parameters()]
for number, drawn in enumerate(work.schedule, 1):
    sums = [torch.zeros_like(p) for p in average]
    for k in drawn:
        with torch.no_grad():
            for p, start in zip(model.parameters(), average):
                p.copy_(start)
        train(model, optimizer, features[k - 1], labels[k - 1], work.batch, order)
        with torch.no_grad():
            for p, total in zip(model.parameters(), sums):
                total += p  # all clients hold equally many rows
    average = [total / len(drawn) for total in sums]
    work.after_round(number)
work.finish(average[0].numpy(), average[1].numpy(), "torch")
