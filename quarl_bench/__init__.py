"""Quantized reinforcement learning: may your policy run in fewer bits?

    import quarl_bench

    print(quarl_bench.check("ppo-cartpole-seed0"))

Names are imported when they are first used, so that the import costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from quarl_bench.version import __version__

if TYPE_CHECKING:
    from quarl_bench.checking.callback import QuantizationCallback as QuantizationCallback
    from quarl_bench.errors import QuarlError
    from quarl_bench.interface import check, evaluate, load_policy, quantize, repair
    from quarl_bench.policies.policy import Policy
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.spec import Verdict
    from quarl_bench.testing import assert_quantizable

__all__ = [
    "Policy",
    "QuarlError",
    "Scheme",
    "Verdict",
    "__version__",
    "assert_quantizable",
    "check",
    "evaluate",
    "load_policy",
    "quantize",
    "repair",
]

_HOMES = {  # the module that has each name
    "Policy": "policies.policy",
    "QuantizationCallback": "checking.callback",  # not in __all__: it is there with stable-baselines3 alone
    "QuarlError": "errors",
    "Scheme": "quantization.scheme",
    "Verdict": "spec",
    "assert_quantizable": "testing",
    "check": "interface",
    "evaluate": "interface",
    "load_policy": "interface",
    "quantize": "interface",
    "repair": "interface",
}

if not TYPE_CHECKING:  # to a type checker every other name would exist

    def __getattr__(name: str) -> Any:
        """A name of the API, imported now."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
