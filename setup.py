"""The packages of federatedscope-ggeur; all else stands in pyproject.toml."""

import sys

import setuptools

if int(setuptools.__version__.split(".")[0]) < 77:
    sys.exit(
        f"setuptools {setuptools.__version__} is too old for this project's "
        "pyproject.toml: use `pip install .`, which fetches its own, or "
        "`pip install 'setuptools>=77'`"
    )

setuptools.setup(
    packages=[
        *setuptools.find_packages(include=["federatedscope_ggeur*"]),
        "federatedscope_ggeur.example_configs",
        "federatedscope_ggeur.study_files",
    ]
)
