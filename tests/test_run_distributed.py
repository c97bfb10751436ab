"""What the script for distributed runs on one machine says of wrong arguments."""

from pathlib import Path

import pytest
from own_process import python

SCRIPT = Path(__file__).parent.parent / "scripts" / "run_distributed.py"


@pytest.mark.parametrize(
    ("content", "settings", "said"),
    [
        (None, [], "No such file or directory: 'run.yaml'"),
        ("seed: 1", [], "run.yaml: federate.client_num is not set"),
        ("seed: 1", ["federate.client_num"], "'federate.client_num' has no value"),
        ("seed: 1", ["federate.client_num", "two"], "'two'"),
        ("seed: [", [], "run.yaml"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, content, settings, said):
    if content is not None:
        (tmp_path / "run.yaml").write_text(content)
    done = python(SCRIPT, "--cfg", "run.yaml", *settings, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
