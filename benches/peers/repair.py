"""Repaired int8 against what other tools make after training, on the same policies, calibration states and episodes.

For each policy, seconds of the search without training (its calibration states are visited before), and mean returns on
test seeds of fp32, plain int8, the form of best decisions, and every tool that is installed, with what it does when
asked for 8 bits: onnxruntime's static quantization (per channel, two of its calibrators), NNCF's post-training
quantization, ai-edge-quantizer's static recipe for LiteRT, and torchao's dynamic activations with 8-bit weights. Each
is played by its own runtime. Observations go through the policy's own transform, and actions through its own head, for
all alike.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from turns import Script, Turns, main

from quarl_bench.judging.times.contest import Contest
from quarl_bench.system.counts import read_episodes

BASELINES = Path(__file__).parents[2] / "baselines" / "policies"
POLICIES = (
    "dqn-cartpole-seed0", "ddpg-mountaincarcontinuous-seed0", "dqn-mountaincar-seed0", "dqn-acrobot-seed5",
    "dqn-lunarlander-seed0", "dqn-lunarlander-seed2",
)  # fmt: skip
EPISODES, QUICK = 100, 2
CALIBRATED = 300  # states for NNCF: its own default
SIGNATURE = "serving_default"  # by which ai-edge-quantizer asks for a model's input


class States:
    """Calibration inputs, one batch at a time, as onnxruntime asks for them."""

    def __init__(self, inputs: Any) -> None:
        self._batches: Iterator[Any] = iter(np.array_split(inputs, max(1, len(inputs) // 500)))

    def get_next(self) -> dict[str, Any] | None:
        """The next batch; None at the end."""
        batch = next(self._batches, None)
        return None if batch is None else {"input": batch}


class Peer:
    """What a tool made, as a policy's net."""

    def __init__(self, run: Callable[[Any], Any], net: Any) -> None:
        self._run, self.input_shape, self.outputs = run, net.input_shape, net.outputs

    def forward(self, x: Any) -> Any:
        """Outputs (n, outputs) for inputs (n, *input_shape)."""
        return self._run(x)


def open_onnx(model: bytes, net: Any) -> Peer:
    """An .onnx file with float ports, played by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return Peer(lambda x: session.run(None, {"input": x})[0], net)


def quantize_with_onnxruntime(calibrator: str, net: Any, inputs: Any) -> Peer:
    """Static quantization by onnxruntime, per channel."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_static

    from quarl_bench.backends.onnx.qdq import write_float_model

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        before.write_bytes(write_float_model(net))
        quantize_static(
            before, after, States(inputs), quant_format=QuantFormat.QDQ, per_channel=True,
            calibrate_method=getattr(CalibrationMethod, calibrator),
        )  # fmt: skip
        return open_onnx(after.read_bytes(), net)


def quantize_with_nncf(net: Any, inputs: Any) -> Peer:
    """NNCF's post-training quantization of the .onnx file, biases corrected as it does."""
    import nncf
    import onnx

    from quarl_bench.backends.onnx.qdq import write_float_model

    rows = [{"input": row[None]} for row in inputs[:: -(-len(inputs) // CALIBRATED)]]
    model = onnx.load_from_string(write_float_model(net))
    return open_onnx(nncf.quantize(model, nncf.Dataset(rows), subset_size=len(rows)).SerializeToString(), net)


def quantize_with_ai_edge(net: Any, inputs: Any) -> Peer:
    """ai-edge-quantizer's static recipe, 8-bit weights and activations, played by LiteRT."""
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer, recipe

    from quarl_bench.backends.litert.flatbuffer import write_float_net

    tool = quantizer.Quantizer(_sign(write_float_net(net)), recipe.static_wi8_ai8())
    rows = [{"input": row[None]} for row in inputs[:: -(-len(inputs) // 1_000)]]
    model = tool.quantize(tool.calibrate({SIGNATURE: rows}, num_threads=1)).quantized_model
    interpreter = Interpreter(model_content=bytes(model), num_threads=1)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def run(x: Any) -> Any:
        rows = []
        for row in x:
            interpreter.set_tensor(source["index"], _store(row[None], source))
            interpreter.invoke()
            rows.append(_restore(interpreter.get_tensor(result["index"]), result))
        return np.concatenate(rows)

    return Peer(run, net)


def quantize_with_torchao(net: Any, inputs: Any) -> Peer:
    """8-bit weights by torchao, with activations whose scale is found at run time, for every row."""
    import torch
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    from quarl_bench.quantization.activations import Activation, make_module

    leaves: list[torch.nn.Module] = []
    for layer in net.layers:
        leaves.append(torch.nn.Linear(*reversed(layer.weight.shape)))
        leaves[-1].load_state_dict({"weight": torch.from_numpy(layer.weight), "bias": torch.from_numpy(layer.bias)})
        leaves += [make_module(layer.activation)] if layer.activation is not Activation.NONE else []
    model = torch.nn.Sequential(*leaves).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())

    def run(x: Any) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(x)).numpy()

    return Peer(run, net)


TOOLS: dict[str, tuple[str, Callable[[Any, Any], Peer]]] = {  # by module that has to be installed
    "onnxruntime, MinMax": ("onnxruntime", partial(quantize_with_onnxruntime, "MinMax")),
    "onnxruntime, Percentile": ("onnxruntime", partial(quantize_with_onnxruntime, "Percentile")),
    "NNCF": ("nncf", quantize_with_nncf),
    "ai-edge-quantizer": ("ai_edge_quantizer", quantize_with_ai_edge),
    "torchao, dynamic": ("torchao", quantize_with_torchao),
}


def compare_policy(name: str, episodes: int, tools: tuple[str, ...]) -> Contest:
    """Mean returns of one policy's forms."""
    from quarl_bench.checking.subject import Subject
    from quarl_bench.evaluation.protocol import list_test_seeds
    from quarl_bench.evaluation.rollouts import measure
    from quarl_bench.experiments.policy_source import PolicySource, open_task
    from quarl_bench.policies.policy import Policy
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.repairing.search import compare_forms, rank
    from quarl_bench.repairing.workbench import Workbench

    stored, environment = open_task(PolicySource(Path(name)))
    subject, fp32 = Subject(stored, environment), stored.policy
    states = len(subject.calibration)
    begin = time.perf_counter()
    attempts = compare_forms(Workbench(subject), Scheme.parse("int8"))
    seconds = time.perf_counter() - begin
    best = rank(attempts)[0].candidate
    policies = {"fp32": fp32, "int8": subject.quantize("int8"), "best decisions": best.policy}
    inputs = fp32.transform.apply(np.asarray(subject.calibration))
    policies |= {tool: Policy(fp32.transform, TOOLS[tool][1](fp32.net, inputs), fp32.head) for tool in tools}
    returns = {
        way: (float(measure([(way, policy)], environment, list_test_seeds(episodes)).mean),)
        for way, policy in policies.items()
    }
    note = (
        f"best decisions are those of {best.name}, one of {len(attempts)} forms on {states} states in {seconds:.1f} s"
    )
    return Contest(Path(name).name, f"mean return of {episodes} episodes", returns, rate=True, note=note)


def compare(turns: Turns) -> Iterator[Contest]:
    """Policy by policy."""
    import torch

    torch.set_num_threads(1)
    tools = tuple(name for name in TOOLS if name not in turns.absent)
    episodes = turns.options.episodes or (QUICK if turns.options.quick else EPISODES)
    policies = turns.options.policies or [str(BASELINES / name) for name in POLICIES]
    for name in policies[:1] if turns.options.quick else policies:
        (found,) = turns.recall(lambda: compare_policy(name, episodes, tools).as_dict(), name)  # noqa: B023 (called now)
        yield Contest.from_dict(found)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("policies", nargs="*", help=f"Default: {', '.join(POLICIES)}.")
    parser.add_argument("--episodes", type=read_episodes, help=f"Default: {EPISODES}.")


def _sign(model: bytes) -> bytearray:
    """A .tflite file with the signature of its one input and output."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    unpacked = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model))
    graph, signature = unpacked.subgraphs[0], schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = SIGNATURE, 0
    for name, places, kept in (("input", graph.inputs, "inputs"), ("output", graph.outputs, "outputs")):
        tensor = schema.TensorMapT()
        tensor.name, tensor.tensorIndex = name, int(places[0])
        setattr(signature, kept, [tensor])
    unpacked.signatureDefs = [signature]
    builder = flatbuffers.Builder(len(model) + 1024)
    builder.Finish(unpacked.Pack(builder), b"TFL3")
    return bytearray(builder.Output())


def _store(x: Any, port: Any) -> Any:
    """`x` as a port takes it: floats as they are, or integers of its scale and zero point."""
    if port["dtype"] is np.float32:
        return x
    scale, zero_point = port["quantization"]
    limits = np.iinfo(port["dtype"])
    return np.clip(np.rint(x / scale) + zero_point, limits.min, limits.max).astype(port["dtype"])


def _restore(x: Any, port: Any) -> Any:
    scale, zero_point = port["quantization"]
    return x if port["dtype"] is np.float32 else ((x.astype(np.float32) - zero_point) * np.float32(scale))


if __name__ == "__main__":
    needs = {tool: module for tool, (module, _) in TOOLS.items()}
    main(Script(__file__, __doc__, compare, 1, needs=needs, add_options=add_options))
