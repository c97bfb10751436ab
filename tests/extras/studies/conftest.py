import made_results
import pytest
from study_on_disk import StudyOnDisk


@pytest.fixture
def make_study(tmp_path):
    """A study file and the command that runs it, given what differs from the usual."""

    def make(**content):
        return StudyOnDisk(tmp_path, **content)

    return make


@pytest.fixture(name="make_record", scope="session")
def make_record_fixture():
    return made_results.make_record


@pytest.fixture(name="make_results", scope="session")
def make_results_fixture():
    return made_results.make_results


@pytest.fixture(name="make_head", scope="session")
def make_head_fixture():
    return made_results.make_head
