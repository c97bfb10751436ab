"""What Tab offers behind the commands of studies."""

from pathlib import Path

from completed import offered

from federatedscope_ggeur.commands.completion import completions

ROOT = Path(__file__).parents[3]


def test_study_files_stand_behind_study_and_settings_behind_those():
    found, places = completions(["study"], "table1")
    bundled = (ROOT / "scripts" / "studies").glob("table1*.yaml")
    assert set(found) == {file.name for file in bundled}
    assert places
    assert offered("study table7 see") == {"seed"}
    assert offered("study table7 use_gpu ") == {"False", "True"}
    assert offered("study table7 --work") == {"--workers"}
