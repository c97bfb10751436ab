"""Flower's simulation: a client app in plain torch on one Ray actor."""

import time

from flower_client import client_app
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_training import linear
from work import Work, given

server_app = ServerApp()


class Given(FedAvg):
    """FedAvg with the clients of the schedule, which know their numbers by it."""

    def __init__(self, work: Work):
        super().__init__(fraction_evaluate=0.0)
        self.work = work

    def configure_train(self, server_round, arrays, config, grid):
        self.work.after_round(server_round - 1)
        drawn = self.work.schedule[server_round - 1]
        folder = str(self.work.folder.resolve())
        while len(nodes := list(grid.get_node_ids())) < len(self.work.features):
            time.sleep(0.1)  # they come one by one
        for k in drawn:
            own = ConfigRecord({"client": k, "folder": folder})
            content = RecordDict({"arrays": arrays, "config": own})
            yield Message(
                content=content, message_type="train", dst_node_id=nodes[k - 1]
            )


@server_app.main()
def serve(grid, context):
    work = given()
    start = ArrayRecord(linear(work.weight, work.bias).state_dict())
    result = Given(work).start(grid=grid, initial_arrays=start, num_rounds=work.rounds)
    head = {k: t.numpy() for k, t in result.arrays.to_torch_state_dict().items()}
    work.finish(head["weight"], head["bias"], "flwr", "ray", "torch")


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        num_supernodes=len(given().features),
        backend_config={
            "init_args": {"num_cpus": 1},
            "client_resources": {"num_cpus": 1},
        },
    )
