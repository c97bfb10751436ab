"""FederatedScope's (FS's) own main.py with the plugin enabled: mistakes are told."""

import sys

import pytest
from own_process import OF_FS, ROOT, in_turn
from standalone import TOY

#: Settings behind the quickstart, and the lines of the error.
WRONG = {
    ("fedswa.use", "True", "ggeur.scale", "big", "no.key", "1"): [
        "no.key: there is no such key",
        "fedswa.use: the plugin takes only False",
        "ggeur.scale: must be",
    ],
    ("distribute.role", "client", "seed", "1"): [
        "Type mismatch",
        "write \"'client'\", with both pairs of quotes",
    ],
    ("federate.use_diff", "True"): ["Once FedEx is adopted"],
    ("federate.total_round_num",): ["odd length"],
}
#: What FS itself says of its own settings stays as it is; of a file that should hold
#: the plugin's, the plugin speaks.
OTHER_FILES = {
    ("--cfg", "broken.yaml"): "error: broken.yaml is not valid YAML",
    ("--cfg", "toy.yaml", "federate.clientnum", "3"): "Traceback",
    ("--cfg", "nowhere.yaml"): "Traceback",
}
BROKEN = "ggeur: {use: True"


@pytest.fixture(scope="module")
def ends(enabled, tmp_path_factory):
    """Each run's exit status and output, by its words."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "toy.yaml").write_text(TOY)
    (folder / "broken.yaml").write_text(BROKEN)
    quickstart = str(ROOT / "scripts" / "example_configs" / "ggeur_quickstart.yaml")
    cases = {words: ["--cfg", quickstart, *words] for words in WRONG}
    cases.update({words: list(words) for words in OTHER_FILES})
    main = str(enabled / "federatedscope" / "main.py")
    calls = [(main, *words) for words in cases.values()]
    first = f"{OF_FS}; import runpy; runpy.run_path({main!r})"
    return dict(zip(cases, in_turn(calls, folder, first=first, path=str(enabled))))


@pytest.mark.slow
@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_wrong_setting_is_told_and_not_traced(ends, words):
    status, output = ends[words]
    assert status == 1
    assert "Traceback" not in output
    error = output[output.index("error: ") :].splitlines()
    assert error[0] == "error: wrong settings:"
    assert len(error) == 1 + len(WRONG[words]), error
    for line, wanted in zip(error[1:], WRONG[words]):
        assert wanted in line


@pytest.mark.slow
@pytest.mark.parametrize("words", OTHER_FILES, ids=" ".join)
def test_files_that_are_not_ours_or_cannot_be_read(ends, words):
    status, output = ends[words]
    assert status == 1
    assert OTHER_FILES[words] in output


def test_the_hook_passes_on_what_it_does_not_show(monkeypatch, capsys):
    from federatedscope_ggeur.engines.fs.user_errors import install_hook
    from federatedscope_ggeur.errors import DataError

    passed = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: passed.append(error[1]))
    install_hook()
    hook = sys.excepthook
    install_hook()
    assert sys.excepthook is hook
    interrupt, ours = KeyboardInterrupt(), DataError("no rows")
    hook(KeyboardInterrupt, interrupt, None)
    hook(DataError, ours, None)
    assert passed == [interrupt]
    assert capsys.readouterr().err == "error: no rows\n"
