# SPDX-License-Identifier: Apache-2.0
"""Two processes with gloo: DDP and FSDP2."""

import os
import socket
import sys
import traceback

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import tetrad.torch as tt  # noqa: E402

RANKS = 2
PASSES = 3


def make_model(**options):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)]
    return tt.convert(torch.nn.Sequential(*layers), keep_last=0, seed=5, **options)


def data(rank, step):
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(64, 64, generator=generator)


def train(model, batch_of):
    """A few steps of gradient descent; `batch_of` gives what this process sees of each."""
    for step in range(PASSES):
        model.zero_grad()
        model(batch_of(step)).square().mean().backward()
        descend(model)


def descend(model):
    """By hand: PyTorch's optimizers import its compiler, which takes most of a test's time."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=0.1)


def in_one_process():
    """The same training: a model for each rank's key takes that rank's batches, gradients are averaged."""
    models = [make_model(rank=rank, ranks=RANKS) for rank in range(RANKS)]
    for step in range(PASSES):
        for rank, model in enumerate(models):
            model.zero_grad()
            model(data(rank, step)).square().mean().backward()
        for parameters in zip(*(model.parameters() for model in models), strict=True):
            mean = sum(parameter.grad for parameter in parameters) / RANKS
            for parameter in parameters:
                parameter.grad = mean.clone()
        for model in models:
            descend(model)
    return models[0]


def work(rank, port, kind, result):
    try:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=rank, world_size=RANKS)
        model = make_model()
        if kind == "ddp":
            wrapped = torch.nn.parallel.DistributedDataParallel(model)
        else:
            from torch.distributed.fsdp import fully_shard

            for layer in tt.layers_of(model).values():
                fully_shard(layer)
            wrapped = fully_shard(model)
        train(wrapped, lambda step: data(rank, step))
        parameters = [getattr(parameter, "full_tensor", lambda p=parameter: p)().detach().clone() for parameter in model.parameters()]
        if rank == 0:
            torch.save((parameters, tuple(model.tetrad_key.get())), result)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_processes_train_like_one(kind, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Importing PyTorch takes longer than all else; a server does it once, and processes are forked from it.
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["tetrad.torch", "torch.distributed.fsdp", "torch._dynamo"])
    processes = [context.Process(target=work, args=(rank, port, kind, tmp_path / "result")) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * RANKS
    parameters, key = torch.load(tmp_path / "result")
    expected = in_one_process()
    assert key == expected.tetrad_key.get() and key[2] == PASSES * RANKS
    for ours, theirs in zip(parameters, expected.parameters(), strict=True):
        # The mean of two gradients is the same in either order, so nothing differs.
        assert torch.equal(ours, theirs)
