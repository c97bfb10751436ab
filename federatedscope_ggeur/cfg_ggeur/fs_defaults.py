"""FederatedScope's (FS's) defaults, and its keys that do nothing here.

What stands in `fs_keys` is honoured or refused. All other keys of FS are here: a YAML
file of FS may hold them on any engine. They come into a config of the embedded engine
only where somebody sets them.
"""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from federatedscope_ggeur.cfg_ggeur.fs_keys import HEAD, TRAINER, FSKey
from federatedscope_ggeur.cfg_ggeur.keys import get_key
from federatedscope_ggeur.cfg_ggeur.transform import row_transform
from federatedscope_ggeur.data import NO_TRANSFORM
from federatedscope_ggeur.settings import Rule, flatten, rule_of

#: What FS's default of a key becomes: nobody has chosen FS's own by leaving it there.
_STANDS_FOR = {
    "model.type": ("lr", HEAD),
    "criterion.type": ("MSELoss", "CrossEntropyLoss"),
    "trainer.type": ("general", TRAINER),
}

#: Settings whose subject there is none of here: accepted, and a run says so.
_IDLE = """
federate: {share_local_model: false, online_aggr: false}
data: {args: [], save_data: false, file_path: '', subsample: 1.0, transform: [],
  target_transform: [], pre_transform: [], val_transform: [], val_target_transform: [],
  val_pre_transform: [], test_transform: [], test_target_transform: [],
  test_pre_transform: []}
dataloader: {num_workers: 0, pin_memory: false}
model: {task: node, hidden: 256, in_channels: 0, out_channels: 1, layer: 2}
train: {data_para_dids: []}
wandb: {client_train_info: false}
"""

#: What to set instead.
_INSTEAD = {
    "data.args": "settings of a reader are ggeur.*",
    "data.transform": "the encoder prepares its images itself",
    "dataloader.num_workers": "ggeur.encoder.num_workers decode images",
    "model.hidden": "ggeur.mlp_hidden_dim says the hidden units",
}

#: Of parts of FS that are off, or of other data and models: they do nothing in FS
#: either.
_OFF = """
cfg_file: ''
hpo: {trial_index: 0, working_folder: hpo, ss: '', num_workers: 0, init_cand_num: 16,
  larger_better: false, scheduler: rs, metric: client_summarized_weighted_avg.val_loss,
  sha: {elim_rate: 3, budgets: [], iter: 0}, pbt: {max_stage: 5, perf_threshold: 0.1},
  fedex: {ss: '', flatten_ss: true, eta0: -1.0, sched: auto, cutoff: 0.0, gamma: 0.0,
    diff: false, psn: false, pi_lr: 0.01},
  table: {eps: 0.1, num: 27, idx: 0},
  fts: {ss: '', target_clients: [], diff: false, local_bo_max_iter: 50,
    local_bo_epochs: 50, fed_bo_max_iter: 50, ls: 1.0, var: 0.1, g_var: 1.0e-06,
    v_kernel: 1.0, obs_noise: 1.0e-06, M: 100, M_target: 200, gp_opt_schedule: 1,
    allow_load_existing_info: true},
  pfedhpo: {discrete: false, train_fl: false, train_anchor: false, ss: '',
    target_fl_total_round: 1000}}
nbafl: {mu: 0.0, epsilon: 100.0, w_clip: 1.0, constant: 30.0}
sgdmf: {R: 5.0, epsilon: 4.0, delta: 0.5, constant: 1.0}
quantization: {nbits: 8}
data: {cSBM_phi: [0.5, 0.5, 0.5], hetero_data_name: [], num_of_client_for_data: [],
  max_seq_len: 384, max_tgt_len: 128, max_query_len: 128, trunc_stride: 128,
  cache_dir: '', hetero_synth_batch_size: 32, hetero_synth_prim_weight: 0.5,
  hetero_synth_feat_dim: 128, num_contrast: 0, is_debug: false, walk_length: 2,
  num_steps: 30, sizes: [10, 5], quadratic: {dim: 1, min_curv: 0.02, max_curv: 12.5}}
dataloader: {walk_length: 2, num_steps: 30, sizes: [10, 5], theta: -1}
feat_engr: {scenario: hfl, num_bins: 5, selec_threshold: 0.05,
  selec_woe_binning: quantile,
  secure: {type: encrypt, key_size: 3072, encrypt: {type: dummy}}}
trainer: {disp_freq: 50, val_freq: 100000000,
  sam: {adaptive: false, rho: 1.0, eta: 0.0},
  local_entropy: {gamma: 0.03, inc_factor: 1.0, eps: 0.0001, alpha: 0.75}}
train: {scheduler: {warmup_ratio: 0.0}}
finetune: {local_update_steps: 1, batch_or_epoch: epoch, freeze_param: '',
  optimizer: {type: SGD, lr: 0.1}, scheduler: {type: '', warmup_ratio: 0.0},
  simple_tuning: false, epoch_linear: 10, lr_linear: 0.005, weight_decay: 0.0,
  local_param: []}
aggregator: {num_agg_groups: 1, num_agg_topk: [], inside_weight: 1.0,
  outside_weight: 0.0}
attack: {target_label_ind: -1, attacker_id: -1, edge_path: edge_data/,
  trigger_path: trigger/, setting: fix, freq: 10, insert_round: 100000,
  mean: [0.9637], std: [0.1592], trigger_type: edge, label_type: dirty, edge_num: 100,
  poison_ratio: 0.5, scale_poisoning: false, scale_para: 1.0, pgd_poisoning: false,
  pgd_lr: 0.1, pgd_eps: 2, self_opt: false, self_lr: 0.05, self_epoch: 6,
  reconstruct_lr: 0.01, reconstruct_optim: Adam, info_diff_type: l2, max_ite: 400,
  alpha_TV: 0.001, alpha_prop_loss: 0, classifier_PIA: randomforest, inject_round: 0,
  mia_simulate_in_round: 20, mia_is_simulate_in: false}
federate: {master_addr: 127.0.0.1, master_port: 29500, atc_vanilla: false,
  atc_load_from: ''}
distribute: {server_host: 0.0.0.0, server_port: 50050, client_host: 0.0.0.0,
  client_port: 50050, role: client, data_file: data, data_idx: -1,
  grpc_max_send_message_length: 314572800,
  grpc_max_receive_message_length: 314572800, grpc_enable_http_proxy: false,
  grpc_compression: nocompression}
vertical: {mode: feature_gathering, dims: [5, 10], encryption: paillier,
  key_size: 3072, algo: lr, feature_subsample_ratio: 1.0, protect_object: '',
  protect_method: '', protect_args: [], eval_protection: '', data_size_for_debug: 0}
asyn: {time_budget: 0, min_received_num: 2, min_received_rate: -1.0,
  staleness_toleration: 0, staleness_discount_factor: 1.0, aggregator: goal_achieved,
  broadcast_manner: after_aggregating, overselection: false}
fedopt: {annealing_step_size: 2000, annealing_gamma: 0.5}
fedswa: {freq: 10, start_rnd: 30}
personalization: {share_non_trainable_para: false, local_update_steps: -1,
  regular_weight: 0.1, lr: 0.0, K: 5, beta: 1.0, lr_feature: 0.1, lr_linear: 0.1,
  epoch_feature: 1, epoch_linear: 2, weight_decay: 0.0}
fedsageplus: {num_pred: 5, gen_hidden: 128, hide_portion: 0.5, fedgen_epoch: 200,
  loc_epoch: 1, a: 1.0, b: 1.0, c: 1.0}
gcflplus: {EPS_1: 0.05, EPS_2: 0.1, seq_length: 5, standardize: false}
flitplus: {tmpFed: 0.5, lambdavat: 0.5, factor_ema: 0.8, weightReg: 1.0}
model: {graph_pooling: mean, embed_size: 8, num_item: 0, num_user: 0, lambda_: 0.1,
  gamma: 0, num_of_trees: 10, max_tree_depth: 3, stage: '',
  model_type: google/bert_uncased_L-2_H-128_A-2, pretrain_tasks: [],
  downstream_tasks: [], num_labels: 1, max_length: 200, min_length: 1,
  no_repeat_ngram_size: 3, length_penalty: 2.0, num_beams: 5, label_smoothing: 0.1,
  n_best_size: 20, max_answer_len: 30, null_score_diff_threshold: 0.0,
  use_contrastive_loss: false, contrast_topk: 100, contrast_temp: 1.0}
regularizer: {mu: 0.0}
"""

#: On FS they act; on the embedded engine, at FS's default alone.
_ON_FS_ONLY = """
aggregator: {robust_rule: fedavg, byzantine_node_num: 0}
federate: {join_in_info: [], resource_info_file: ''}
hpo: {fedex: {use: false}, fts: {use: false}, pfedhpo: {use: false}}
model: {model_num_per_trainer: 1}
"""

#: FS's former names of keys, which it still takes.
_FORMER = """
data: {loader: '', batch_size: 64, shuffle: true, num_workers: 0, drop_last: false}
"""


def _in_table(text: str) -> list[tuple[str, object]]:
    return list(flatten(yaml.safe_load(text)))


def _anything(value) -> str:
    return ""


def _former(name: str, default: object) -> Rule:
    now = {"data.loader": "dataloader.type"}.get(
        name, name.replace("data", "dataloader")
    )
    return rule_of(f"has another name now, {now}", lambda value: value == default)


def _here_only(default: object) -> Rule:
    problem = f"the embedded engine takes only {default!r}"
    return rule_of(problem, lambda value: value == default)


_IDLE_DEFAULTS = dict(_in_table(_IDLE))

#: Every key of FS that `fs_keys` does not hold, but for sections that may hold any.
OTHER_KEYS = {
    key.name: key
    for key in (
        *(FSKey(n, d, _anything) for n, d in _in_table(_IDLE) + _in_table(_OFF)),
        *(FSKey(n, d, _here_only(d)) for n, d in _in_table(_ON_FS_ONLY)),
        *(FSKey(n, d, _former(n, d)) for n, d in _in_table(_FORMER)),
        FSKey("model.input_shape", (), _anything),
    )
}


def settle_defaults(cfg) -> list[str]:
    """Put the plugin's own model, criterion and trainer where FS's default stands.

    Returns
    -------
    list of str
        The keys that were changed.
    """
    changed = [
        name for name, (default, _) in _STANDS_FOR.items() if _is(cfg, name, default)
    ]
    for name in changed:
        _set(cfg, name, _STANDS_FOR[name][1])
    return changed


def unsettle_defaults(cfg, names: Iterable[str]) -> None:
    """FS's defaults again, in a config in which the plugin was switched off later."""
    for name in names:
        default, ours = _STANDS_FOR[name]
        if _is(cfg, name, ours):
            _set(cfg, name, default)


def _is(cfg, name: str, value: object) -> bool:
    return get_key(cfg, name) == value


def _set(cfg, name: str, value: object) -> None:
    section, key = name.split(".")
    cfg[section][key] = value


def idle_notes(cfg) -> list[str]:
    """Which settings do nothing here although they are not at FS's default."""
    found = []
    for name, default in _IDLE_DEFAULTS.items():
        try:
            value = get_key(cfg, name)
        except KeyError:
            continue
        if name == "data.transform" and row_transform(cfg) != NO_TRANSFORM:
            continue
        if value != default:
            instead = _INSTEAD.get(name)
            found.append(f"{name} ({instead})" if instead else name)
    return [f"these settings do nothing here: {', '.join(found)}"] if found else []
