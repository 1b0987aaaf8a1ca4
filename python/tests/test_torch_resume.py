# SPDX-License-Identifier: Apache-2.0
"""A training that is killed goes on to the bit."""

import os
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

SCRIPT = """
import os, signal, sys
import torch, tetrad.torch as tt
path, kill_at = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
tt.convert(model, keep_last=0, seed=7)
tt.set_schedule(model, [(0.5, {"forward": "bf16"})], passes=16)
momenta = [torch.zeros_like(parameter) for parameter in model.parameters()]
step = 0
if os.path.exists(path):
    state = torch.load(path)
    model.load_state_dict(state["model"]); momenta = state["momenta"]; step = state["step"]
while step < 8:
    for micro in range(2):
        x = torch.randn(64, 64, generator=torch.Generator().manual_seed(10 * step + micro))
        model(x).square().mean().backward()
    with torch.no_grad():  # by hand: PyTorch's optimizers import its compiler, which takes most of a test's time
        for momentum, parameter in zip(momenta, model.parameters()):
            parameter.sub_(momentum.mul_(0.9).add_(parameter.grad), alpha=0.05)
    model.zero_grad(); step += 1
    torch.save({"model": model.state_dict(), "momenta": momenta, "step": step}, path + ".new")
    os.replace(path + ".new", path)
    if step == kill_at: os.kill(os.getpid(), signal.SIGKILL)
"""


def run(path, kill_at=-1):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(path), str(kill_at)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_killed_training_goes_on_to_the_bit(tmp_path):
    whole = run(tmp_path / "whole.pt")
    assert whole.returncode == 0, whole.stderr
    assert run(tmp_path / "killed.pt", kill_at=3).returncode == -signal.SIGKILL
    assert run(tmp_path / "killed.pt", kill_at=6).returncode == -signal.SIGKILL
    resumed = run(tmp_path / "killed.pt")
    assert resumed.returncode == 0, resumed.stderr
    expected, actual = (torch.load(tmp_path / name)["model"] for name in ("whole.pt", "killed.pt"))
    assert set(expected) == set(actual)
    for name in expected:
        assert torch.equal(expected[name], actual[name]), name
