"""What grows with the clients of a federation of which 50 train in a round.

For each K: K clients of 10 rows of D = 512, 8 to train on and 2 to test, 10 classes;
FedAvg on a linear head, one epoch in batches of 4. The server scores the head, once, at
the end. Each K runs in a process of its own. Times are CPU times. Memory is the most
that a process held from the set-up on; "kB a client more" is what it grows by with each
client beyond the first K, the rows left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from measure import report

ROWS, TEST_ROWS, CLASSES, SAMPLED, BATCH = 10, 2, 10, 50, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10000, 100000])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--settings", nargs="*", default=[], metavar="KEY VALUE")
    parser.add_argument("--csv")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.clients, options.dim, options.rounds = [100, 1000], 16, 4
    if options.one:
        print(json.dumps(measured(options.clients[0], options)))
        return
    found = [_in_a_process(clients, options) for clients in options.clients]
    report([shown(one, found[0]) for one in found], options.csv)


def _in_a_process(clients: int, options: argparse.Namespace) -> dict:
    words = [sys.executable, __file__, "--one", "--clients", clients]
    words += ["--dim", options.dim, "--rounds", options.rounds]
    words += ["--settings", *options.settings]
    said = subprocess.run(
        list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return json.loads(said.splitlines()[-1])


def shown(one: dict, first: dict) -> dict[str, object]:
    """A row of the table; ratios are to the `first` one."""
    more = one["clients"] / first["clients"]
    each = 1e6 * one["round 0"] / one["clients"]
    grown = one["round"] / first["round"]
    clients = one["clients"] - first["clients"]
    beside = one["beside"] - first["beside"]
    kilobytes = f"{beside / clients / 1e3:.2f}" if clients else ""
    return {
        "K": one["clients"],
        "data s": f"{one['data']:.2f}",
        "set-up s": f"{one['set-up']:.2f}",
        "round 0 s": f"{one['round 0']:.2f}",
        "us a client": f"{each:.0f}",
        "a round ms": f"{1e3 * one['round']:.1f}",
        "times the first": f"{grown:.2f} at {more:g} times K",
        "a client-round ms": f"{1e3 * one['round'] / min(SAMPLED, one['clients']):.2f}",
        "process GB": f"{one['all'] / 1e9:.2f}",
        "most, with data GB": f"{one['most'] / 1e9:.2f}",
        "kB a client more": kilobytes,
        "results.json kB": f"{one['results.json'] / 1e3:.0f}",
        "log kB": f"{one['log'] / 1e3:.0f}",
    }


def measured(clients: int, options: argparse.Namespace) -> dict[str, float]:
    import torch

    from federatedscope_ggeur import FederatedData
    from federatedscope_ggeur.cfg_ggeur.load import load_config
    from federatedscope_ggeur.commands.console import _Rounds
    from federatedscope_ggeur.engines.run import Run
    from federatedscope_ggeur.progress import no_progress
    from federatedscope_ggeur.reporting import write_run
    from federatedscope_ggeur.reporting.run_files import logging_to

    torch.set_num_threads(1)
    imported = _resident()
    rows, train = clients * ROWS, clients * (ROWS - TEST_ROWS)
    generator = torch.Generator().manual_seed(0)
    features = torch.empty(rows, options.dim).normal_(generator=generator)
    labels = torch.randint(CLASSES, (rows,), generator=generator)
    # Rows to train on stand before those to test on, so nothing is moved.
    each = torch.arange(clients)
    holders = [each.repeat_interleave(n) for n in (ROWS - TEST_ROWS, TEST_ROWS)]
    is_test = torch.arange(rows) >= train
    spent = {"clients": clients}
    started = time.process_time()
    data = FederatedData.from_arrays(
        features, labels, torch.cat(holders), test=is_test, copy=False
    )
    spent["data"] = time.process_time() - started
    del labels, holders, is_test
    of_data = _most()
    cfg = load_config(_settings(clients, options.rounds), options.settings)
    _forget_most()
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        run = Run(cfg, data)
        spent["set-up"] = time.process_time() - started
        run.engine.keep_in(folder)
        marks = [time.process_time()]
        log = logging_to(Path(folder) / "log.txt")
        with log, no_progress(), _Rounds(run) as rounds:

            def watch(record) -> None:
                marks.append(time.process_time())
                rounds.show(record)

            run.follow(watch)
            held = _most()
            write_run(folder, run.history.results(), run.history.head_bytes())
        for name in ("results.json", "log.txt"):
            spent[name.removesuffix(".txt")] = (Path(folder) / name).stat().st_size
    times = [b - a for a, b in zip(marks, marks[1:])]
    spent["round 0"] = times[0]
    # Not the last one, which ends with scores, and not the first.
    spent["round"] = median(times[2:-1])
    embeddings = features.numel() * features.element_size()
    spent["all"], spent["most"] = held, max(held, of_data)
    spent["beside"] = held - imported - embeddings
    return spent


def _settings(clients: int, rounds: int) -> dict:
    return {
        "federate": {
            "method": "ggeur",
            "client_num": clients,
            "sample_client_num": SAMPLED,
            "total_round_num": rounds,
            "make_global_eval": True,
        },
        "data": {"type": "embeddings@ggeur", "root": "given", "splitter": "natural"},
        "dataloader": {"batch_size": BATCH},
        "train": {"local_update_steps": 1, "batch_or_epoch": "epoch"},
        "eval": {"freq": rounds},
        "ggeur": {"use": True, "steps": []},
    }


def _resident() -> int:
    """Bytes of this process in memory."""
    return _status("VmRSS")


def _most() -> int:
    """The most that there were since `_forget_most`."""
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def _forget_most() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


if __name__ == "__main__":
    main()
