"""One module per command of `quarl`, and what `quarl --help` says of each without importing it."""

from typing import NamedTuple


class Command(NamedTuple):
    """Where a command is, below this package, and its one line of help."""

    module: str
    help: str


COMMANDS = {
    "check": Command(
        "playing.check",
        "Say whether a policy keeps its return in fewer bits, what each form costs, and which one to ship.",
    ),
    "repair": Command("quantizing.repair", "Find a form of a policy that keeps its return in fewer bits."),
    "train": Command("training.train", "Train one policy by its recipe."),
    "quantize": Command(
        "quantizing.quantize",
        "Write a policy with quantized weights, or for int<n> its integer parameters.",
    ),
    "evaluate": Command("playing.evaluate", "Play a policy under a scheme, against its fp32 self."),
    "play": Command("playing.play", "Watch a policy under several schemes, from the same start, side by side."),
    "sweep": Command(
        "playing.sweep",
        "Play one policy at every bit width and find the fewest bits that keep its return to 5 percent.",
    ),
    "select": Command(
        "quantizing.select",
        "Select the smallest integer controller that matches fp32: core bits, hidden width, input bits.",
    ),
    "weights": Command(
        "quantizing.weights",
        "Statistics of a policy's weights, per layer and pooled, and what quantization does to them.",
    ),
    "deploy": Command(
        "deploying.deploy", "Write a policy as files for LiteRT, ONNX or C, and check that they give the same outputs."
    ),
    "board": Command(
        "deploying.board", "Show the state of a board; check deployed files on it, or time two of them in turns."
    ),
    "fpga": Command(
        "deploying.fpga", "Find the fastest FPGA design of a policy that fits; estimate its size and simulate it."
    ),
    "actorq": Command("training.actorq", "Train with quantized actors and a full-precision learner."),
    "grid": Command("training.grid", "Train, quantize and evaluate a list of policies on several processes."),
    "nightly": Command("results.nightly", "Judge the claims in parts on several processes, and merge the results."),
    "prove": Command(
        "deploying.prove",
        "Play the same episodes with one integer policy in every backend, and compare the hashes of its actions.",
    ),
    "report": Command("results.report", "Make one self-contained HTML page of results; merge the parts of a run."),
    "compare": Command(
        "results.compare",
        "Say what moved between two results files: verdicts, and numbers by more than a standard error.",
    ),
    "audit": Command(
        "results.audit", "Judge every case of a results file again, from the returns that it holds; name what differs."
    ),
    "plan": Command(
        "results.plan",
        "Say which policies would decide a claim that is undecided, and how many hours their training takes.",
    ),
    "fetch": Command("fetch", "Fetch the agents of rl-baselines3-zoo that claims play, from the Hugging Face hub."),
    "list": Command("inventory", "List policies, environments, schemes, backends, boards and claims by name."),
}
