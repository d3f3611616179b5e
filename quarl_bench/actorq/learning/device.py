"""Where the learner computes: a CPU, or a GPU that has to be there."""

import torch

from quarl_bench.actorq.settings import GPU
from quarl_bench.errors import EngineError


def open_device(name: str) -> torch.device:
    """The device `cpu` or `cuda`; EngineError for a GPU that torch does not see."""
    if name == GPU and not torch.cuda.is_available():
        raise EngineError(f"device 'cuda': torch {torch.__version__} sees no GPU here; leave --device out")
    return torch.device(name)


def wait(device: torch.device) -> None:
    """Until a GPU has done what it was given, so that clocks count its time where it was spent."""
    if device.type == GPU:
        torch.cuda.synchronize(device)


def name_gpu(name: str) -> str:
    """Which GPU `cuda` is; empty for a CPU, which the record of a run names anyway."""
    return torch.cuda.get_device_name() if name == GPU else ""
