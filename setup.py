"""Packaging of federatedscope-ggeur; the tools' settings stand in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$',
    (HERE / "federatedscope_ggeur" / "__init__.py").read_text(encoding="utf-8"),
    re.MULTILINE,
).group(1)
#: What FederatedScope needs beside our own; it is not on PyPI itself.
FEDERATEDSCOPE = ["pandas", "grpcio", "protobuf", "pympler"]
TEST = ["pytest", "pytest-xdist", "hypothesis"]
EXAMPLES = "federatedscope_ggeur.example_configs"

setup(
    name="federatedscope-ggeur",
    version=VERSION,
    description="GGEUR (CVPR 2025) for FederatedScope: federated classification "
    "on frozen image embeddings under label and domain skew",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.9",
    packages=[*find_packages(include=["federatedscope_ggeur*"]), EXAMPLES],
    package_dir={EXAMPLES: "scripts/example_configs"},
    package_data={EXAMPLES: ["*.yaml"]},
    install_requires=[
        "torch>=1.13",
        "torchvision",
        "numpy>=1.22",
        "pillow>=9.1",
        "scipy",
        "yacs",
        "pyyaml",
        "open_clip_torch",
        "safetensors",
        "scikit-learn",
        "scikit-image",
        "tqdm",
        "matplotlib>=3.6",
    ],
    extras_require={
        "federatedscope": FEDERATEDSCOPE,
        # Tests that need FederatedScope run wherever a checkout of it is named.
        "test": [*TEST, *FEDERATEDSCOPE],
        # ruff's formatting changes between minor releases.
        "dev": [*TEST, *FEDERATEDSCOPE, "ruff==0.17.*"],
    },
    entry_points={
        "console_scripts": ["federatedscope-ggeur=federatedscope_ggeur.cli:main"]
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
