import pytest
from study_on_disk import StudyOnDisk


@pytest.fixture
def make_study(tmp_path):
    """A study file and the command that runs it, given what differs from the usual."""

    def make(**content):
        return StudyOnDisk(tmp_path, **content)

    return make
