"""Results made by hand."""

import made_results
import pytest


@pytest.fixture(name="make_record", scope="session")
def make_record_fixture():
    return made_results.make_record


@pytest.fixture(name="make_results", scope="session")
def make_results_fixture():
    return made_results.make_results


@pytest.fixture(name="make_head", scope="session")
def make_head_fixture():
    return made_results.make_head
