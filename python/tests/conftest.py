# SPDX-License-Identifier: Apache-2.0
"""What tests share. They need the package (PYTHONPATH or an installation); TETRAD_PROGRAM names the program that some of
them compare it with."""

import os

import numpy as np
import pytest

import tetrad


def pytest_sessionfinish(session):
    """Where the program is at hand everything else is, too, and what is skipped was not checked."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if "TETRAD_PROGRAM" in os.environ and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def program():
    path = os.environ.get("TETRAD_PROGRAM")
    if not path:
        pytest.skip("TETRAD_PROGRAM does not say where the program is")
    return path


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture(scope="session")
def models():
    """Small models that were converted and trained, by their kind; whoever changes one takes a copy."""
    from functools import cache

    from small_models import trained_model

    return cache(trained_model)


def dequantized_product(a, b):
    """a bᵀ in double precision, and the bound of what a product in float32 may be off by."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    bound = (a.shape[1] + 8) * 2.0**-24 * (np.abs(a) @ np.abs(b).T)
    return a @ b.T, bound


RECIPES = ["bf16", "fp8", "mxfp4", "nvfp4", "tetrad", {"recipe": "tetrad", "scale": "eden"}, {"recipe": "nvfp4", "centre": True}]
KEY = tetrad.Key(0x123456789AB, 7, 3)
