"""A test stands where its module is looked for, or `ELSEWHERE` says where."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "federatedscope_ggeur"
MODULES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*.py")
    if not path.stem.startswith("__")
)
#: Module -> the file that tests it, where that is another than its own.
ELSEWHERE = {
    "audit/base.py": "audit/test_suite.py",
    "cfg_ggeur/described.py": "cfg_ggeur/test_check.py",
    "cfg_ggeur/fs_keys.py": "engines/fs/test_fs_config.py",
    "cfg_ggeur/keys.py": "cfg_ggeur/test_check.py",
    "cfg_ggeur/encoding.py": "cfg_ggeur/test_cfg_ggeur_devices.py",
    "cfg_ggeur/run_settings.py": "cfg_ggeur/test_method_settings.py",
    "cfg_ggeur/text_settings.py": "engines/test_text_models.py",
    "commands/inspection.py": "commands/test_inspect.py",
    "commands/prediction.py": "commands/test_predict.py",
    "commands/zero_shot.py": "commands/test_predict_names.py",
    "data/cache/entry.py": "data/cache/test_embedding_cache.py",
    "data/cache/files.py": "data/cache/test_embedding_cache.py",
    "data/cache/index.py": "data/cache/test_embedding_cache.py",
    "data/cache/parts.py": "data/cache/test_embedding_cache.py",
    "data/encoded.py": "data/cache/test_carried_cache.py",
    "data/encoders/hog.py": "data/encoders/test_hand_made.py",
    "data/encoders/keys.py": "data/encoders/test_encoders_base.py",
    "data/encoders/model.py": "data/encoders/test_timm.py",
    "data/encoders/open_clip_weights.py": "data/encoders/test_open_clip.py",
    "data/encoders/pixels.py": "data/encoders/test_hand_made.py",
    "data/encoding.py": "data/cache/test_embedding_cache.py",
    "data/fingerprint.py": "reporting/test_provenance.py",
    "data/images/arrays.py": "data/images/test_cifar.py",
    "data/images/base.py": "data/images/test_images_folder.py",
    "data/images/cifar_files.py": "data/images/test_cifar.py",
    "data/images/layout.py": "data/images/test_images_folder.py",
    "data/images/office_caltech.py": "data/images/test_office.py",
    "data/images/office_home.py": "data/images/test_office.py",
    "data/text/keys.py": "data/text/test_templates.py",
    "data/text/load.py": "data/text/test_text_cache.py",
    "data/splitters/base.py": "data/test_partition.py",
    "data/splitters/skew.py": "data/test_partition.py",
    "engines/text.py": "engines/test_text_runs.py",
    "engines/meter.py": "engines/test_forecast.py",
    "engines/fs/channel.py": "engines/fs/test_rogue_workers.py",
    "engines/fs/client.py": "engines/fs/test_fs_workers.py",
    "engines/fs/federation.py": "engines/fs/test_fs_outputs.py",
    "engines/fs/fs_scores.py": "engines/fs/test_fs_outputs.py",
    "engines/fs/loader.py": "engines/fs/test_install.py",
    "engines/fs/model.py": "engines/fs/test_fs_data.py",
    "engines/fs/registration.py": "engines/fs/test_fs_config.py",
    "engines/fs/server.py": "engines/fs/test_fs_workers.py",
    "engines/fs/setup.py": "engines/fs/test_fs_outputs.py",
    "federation/client.py": "federation/test_roles.py",
    "federation/course/client_store.py": "federation/course/test_checkpoint_writer.py",
    "federation/course/gathering.py": "federation/course/test_summing.py",
    "federation/summed_stage.py": "engines/test_summed_runs.py",
    "federation/course/exchange.py": "federation/course/test_coordinator.py",
    "engines/fs/leading.py": "engines/fs/test_hostile_peers.py",
    "federation/course/places.py": "federation/course/test_checkpoint_writer.py",
    "federation/global_shapes.py": "federation/test_round_zero.py",
    "federation/course/plan.py": "federation/course/test_coordinator.py",
    "federation/memory.py": "federation/test_roles.py",
    "federation/settings.py": "federation/test_roles.py",
    "federation/masking/settings.py": "federation/masking/test_masking_vectors.py",
    "federation/messages/schema.py": "federation/messages/test_payloads.py",
    "federation/prototypes.py": "federation/test_round_zero.py",
    "federation/server.py": "federation/test_roles.py",
    "federation/task.py": "federation/test_roles.py",
    "geometry/moments.py": "geometry/test_statistics.py",
    "geometry/scatter.py": "geometry/test_thin_factor.py",
    "methods/fedfa_layers.py": "methods/test_fedfa_plus.py",
    "methods/contexts.py": "methods/test_methods_base.py",
    "methods/tensors.py": "methods/test_methods_base.py",
    "models/closed_forms/choices.py": "models/closed_forms/test_auto.py",
    "models/closed_forms/components.py": "models/closed_forms/test_left_out.py",
    "models/closed_forms/seen.py": "models/closed_forms/test_closed_forms_base.py",
    "models/text/classes.py": "models/closed_forms/test_zeroshot.py",
    "models/text/keys.py": "cfg_ggeur/test_cfg_ggeur_text.py",
    "models/text/base.py": "models/text/test_prompts.py",
    "models/build.py": "models/test_heads.py",
    "models/linear.py": "models/test_heads.py",
    "models/mlp.py": "models/test_heads.py",
    "models/networks/alexnet_bn.py": "models/networks/test_networks_table.py",
    "models/networks/base.py": "models/networks/test_networks_table.py",
    "models/networks/convnet5.py": "models/networks/test_networks_table.py",
    "models/networks/digits_cnn.py": "models/networks/test_networks_table.py",
    "models/networks/resnet.py": "models/networks/test_networks_table.py",
    "models/networks/simple_cnn.py": "models/networks/test_networks_table.py",
    "models/networks/timm.py": "models/networks/test_networks_table.py",
    "reporting/comparison/folder.py": "commands/test_report.py",
    "reporting/comparison/long_csv.py": "reporting/comparison/test_comparison.py",
    "reporting/comparison/measures.py": "reporting/comparison/test_comparison.py",
    "reporting/comparison/pictures.py": "reporting/comparison/test_figures.py",
    "reporting/comparison/sheets.py": "reporting/comparison/test_comparison_text.py",
    "reporting/comparison/table.py": "reporting/comparison/test_comparison.py",
    "lock.py": "data/cache/test_carried_cache.py",
    "reporting/log_file.py": "studies/test_running.py",
    "studies/jobs.py": "studies/test_running.py",
    "studies/plan.py": "studies/test_study_file.py",
    "studies/workers.py": "studies/test_running.py",
    "commands/study_table.py": "commands/test_study.py",
    "reporting/plain.py": "reporting/test_results.py",
    "reporting/records.py": "reporting/test_results.py",
    "transport/hub.py": "transport/test_transport.py",
    "transport/link.py": "transport/test_transport.py",
    "transport/settings.py": "transport/test_transport.py",
    "transport/streams.py": "transport/test_transport.py",
}


def own_tests(module: str) -> list[Path]:
    """Where the tests of `module` are looked for: ``test_<module>.py`` in the mirrored
    folder or, where another folder has a module of that name too,
    ``test_<folder>_<module>.py``."""
    path = Path(module)
    names = (path.stem, f"{path.parent.name}_{path.stem}")
    places = [TESTS / path.parent / f"test_{name}.py" for name in names]
    return [place for place in places if place.exists()]


def defined_in(module: str) -> set[str]:
    """The names that a module defines for others, and its own."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    names = {f"{module[:-3].replace('/', '.')}", module}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_tests(module):
    own = own_tests(module)
    if module not in ELSEWHERE:
        assert own, f"{module}: write its test file, or say in ELSEWHERE where one is"
        return
    assert not own, f"{module}: {own[0].name} is there, so it is not ELSEWHERE"
    text = (TESTS / ELSEWHERE[module]).read_text(encoding="utf-8")
    words = set(re.findall(r"[\w./]*\w", text))
    assert words & defined_in(module), f"{ELSEWHERE[module]} uses nothing of {module}"


def test_elsewhere_names_modules_that_there_are():
    assert set(ELSEWHERE) <= set(MODULES)


def test_names_of_test_files_are_unique():
    """Pytest's default import mode wants it, and so does a person who looks for one."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
