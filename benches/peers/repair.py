"""Repaired int8 against onnxruntime's static quantization, on the same policies, calibration states and episodes.

`python benches/peers/repair.py POLICY... [--episodes N]`: for each policy, seconds of the search without training (its
calibration states are visited before), and mean returns on test seeds of fp32, plain int8, the form of best decisions,
and onnxruntime's QDQ models per channel with its MinMax and Percentile calibrators, played by onnxruntime. Observations
go through the policy's own transform, and actions through its own head, for all alike.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

CALIBRATORS = ("MinMax", "Percentile")


class States:
    """Calibration inputs, one batch at a time, as onnxruntime asks for them."""

    def __init__(self, inputs: Any) -> None:
        self._batches: Iterator[Any] = iter(np.array_split(inputs, max(1, len(inputs) // 500)))

    def get_next(self) -> dict[str, Any] | None:
        """The next batch; None at the end."""
        batch = next(self._batches, None)
        return None if batch is None else {"input": batch}


class Peer:
    """An .onnx file with float ports as a policy's net."""

    def __init__(self, model: bytes, net: Any) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.input_shape, self.outputs = net.input_shape, net.outputs

    def forward(self, x: Any) -> Any:
        """Outputs (n, outputs) for inputs (n, *input_shape)."""
        return self._session.run(None, {"input": x})[0]


def quantize_with_onnxruntime(subject: Any, calibrator: str) -> Any:
    """The subject's policy with onnxruntime's static quantization, per channel."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_static

    from quarl_bench.backends.onnx.qdq import write_float_model
    from quarl_bench.policies.policy import Policy

    policy = subject.stored.policy
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        before.write_bytes(write_float_model(policy.net))
        quantize_static(
            before, after, States(policy.transform.apply(subject.calibration)), quant_format=QuantFormat.QDQ,
            per_channel=True, calibrate_method=getattr(CalibrationMethod, calibrator),
        )  # fmt: skip
        return Policy(policy.transform, Peer(after.read_bytes(), policy.net), policy.head)


def compare(name: str, episodes: int) -> None:
    """Print one policy's lines."""
    from quarl_bench.checking.subject import Subject
    from quarl_bench.evaluation.protocol import list_test_seeds
    from quarl_bench.evaluation.rollouts import measure
    from quarl_bench.experiments.policy_source import PolicySource, open_task
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.repairing.search import compare_forms, rank
    from quarl_bench.repairing.workbench import Workbench

    stored, environment = open_task(PolicySource(Path(name)))
    subject = Subject(stored, environment)
    print(f"{name}: {len(subject.calibration)} calibration states", flush=True)
    begin = time.perf_counter()
    attempts = compare_forms(Workbench(subject), Scheme.parse("int8"))
    seconds = time.perf_counter() - begin
    best = rank(attempts)[0].candidate
    policies = {"fp32": stored.policy, "int8": subject.quantize("int8"), best.name: best.policy}
    policies |= {f"onnxruntime {way}": quantize_with_onnxruntime(subject, way) for way in CALIBRATORS}
    print(f"  search without play or training: {seconds:.1f} s, {len(attempts)} forms")
    for way, policy in policies.items():
        mean = measure([(way, policy)], environment, list_test_seeds(episodes)).mean
        print(f"  {way:32} {mean:10.4g}", flush=True)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+")
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    for policy in arguments.policies:
        compare(policy, arguments.episodes)
