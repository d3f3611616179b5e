"""What a wrong word, or a file of another kind, is answered with: what it is, and what to write instead."""

import pytest
import torch
from torch import nn

NET = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture
def files(folder):
    """A module of torch whole, its state, what is cut short or empty, and a module of Python."""
    torch.save(NET, folder / "whole.pt")
    torch.save(NET.state_dict(), folder / "state.pt")
    content = (folder / "state.pt").read_bytes()
    (folder / "cut.pt").write_bytes(content[: len(content) // 2])
    for name in ("empty.pt", "empty.onnx", "empty.zip"):
        (folder / name).touch()
    program = torch.export.export(NET, (torch.zeros(2, 4),))
    torch.export.save(program, folder / "net.pt2")
    (folder / "meant.py").write_text("import torch\npolicy = torch.nn.Linear(4, 2)\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("check policy --episods 5", "quarl check: unrecognized arguments: --episods 5; did you mean --episodes?"),
        ("check policy --nosuch", "quarl check: unrecognized arguments: --nosuch; quarl check --help lists"),
        ("--nosuch", "quarl: unrecognized arguments: --nosuch; quarl --help lists"),
        ("weights net.pt2", "net.pt2: a network alone says nothing about its task; pass --environment"),
        ("check net.pt2 --environment Pendulum-v1", "net.pt2 in Pendulum-v1: a Linear layer of 4 inputs cannot follow"),
        ("check net.pt2 --environment CartPole-v1 --algo ppo", "a network alone has no algorithm to be named; leave"),
        ("check whole.pt --environment CartPole-v1", "Sequential', which is no data of a policy; it is refused, and"),
        ("check whole.pt --environment CartPole-v1 --arch fc1", "save the module's state_dict, or export it to .onnx"),
        ("check cut.pt --environment CartPole-v1", "cut.pt: not a zip, or cut short; restore it"),
        ("check state.pt --environment CartPole-v1", "of a state dictionary pass --arch as well"),
        ("check empty.pt --environment CartPole-v1", "empty.pt: an empty file; write it again"),
        ("check empty.onnx --environment CartPole-v1", "empty.onnx: an empty file; write it again"),
        ("check empty.zip", "empty.zip: an empty file; write it again"),
        ("check policy --arch elu", "policy: its manifest says arch itself; leave arch out"),
        ("check https://huggingface.co/sb3/ppo-CartPole-v1", "agents of the Hugging Face hub are hub:OWNER/REPOSITORY"),
        ("check hub:CartPole", "hub:OWNER/REPOSITORY"),
        ("check HUB:sb3/ppo-CartPole-v1", "agents of the Hugging Face hub are hub:OWNER/REPOSITORY"),
        ("check meant:polcy --environment CartPole-v1", "'meant:polcy': meant has no 'polcy'; did you mean 'policy'?"),
        ("repair policy --target fpgaa", "target 'fpgaa': unknown backend 'fpgaa'; known are litert, litert-dynamic"),
        ("repair policy --target fpgaa", "; or fpga, or any"),
        ("deploy policy --backend fpga --output new", "--backend fpga: a design is what `quarl fpga` writes"),
        ("train ppo cartpole --scheme qat4,qat4 --output new", "--scheme qat4,qat4: a scheme is named twice"),
        ("grid absent.toml", "quarl grid: grid absent.toml: No such file or directory; pass a readable TOML file"),
        ("board loca", "no board 'loca': did you mean 'local'? no board file: pass"),
        ("board local --boards absent.toml", "board file absent.toml: No such file or directory; pass a file like"),
        ("select sac hopperv4 --published absent", "absent/sac_fp.csv: No such file or directory; name the folder of"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of torch's own
def test_a_line_says_what_it_is_and_what_to_write(arguments, said, files, quarl):
    code, _, err = quarl(*arguments.split())
    assert (code, said in err, err.count("\n")) == (2, True, 1), err


def test_a_floor_may_be_written_as_numbers_are(folder, quarl):
    for floor in ("-1e3", "-1000", "-1000.", "-.5e1"):
        code, _, err = quarl("check", "policy", "--floor", floor, "--episodes", "2", "--scheme", "int9")
        assert (code, "scheme 'int9'" in err) == (2, True), err  # the floor was read


def test_weights_of_a_network_are_looked_at_where_its_task_is_named(files, quarl_json):
    found = quarl_json("weights", "net.pt2", "--environment", "CartPole-v1")
    assert [row["name"] for row in found["rows"]] == ["layers.0.weight", "layers.1.weight", "all"]
