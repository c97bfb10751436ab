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
        # Folders that hold only data count as packages, too: setuptools asks for it.
        *setuptools.find_namespace_packages(
            include=["federatedscope_ggeur*"], exclude=["*__pycache__*"]
        ),
        "federatedscope_ggeur.example_configs",
        "federatedscope_ggeur.study_files",
    ]
)
