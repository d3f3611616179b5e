"""How much the tests take: a little by default, all of it where QUARL_EXHAUSTIVE is set, as the nightly does.

Every property is tested either way; sizes and repetitions are what shrinks. By default

| test | takes | exhaustive |
|---|---|---|
| a committed policy plays as its manifest | one policy of an environment, of Atari one; an episode | all, 20 and 3 |
| it is bit-exact in LiteRT | one of an environment, 500 states, 20 images; few at int8pow2 | all, 100,000; 500 |
| it is so in every other backend | four policies, 1,000 states; images 10 (int8); two C kernels | all, 100,000; 2,000 |
| every activation is bit-exact in every backend | two, 1,000 inputs, one kernel of C | all, 100,000, all |
| ties round as the golden model's in every backend | 1,024 outputs of a net, of C 2,048 | 4,096 and 8,192 |
| activations of fewer bits, or without a sign, in C | two kernels | all |
| recurrent cells are bit-exact in C, ONNX and dump | int4, 2,000 states, two C kernels | int8 too, 100,000, all |
| torch's exports of a memory act as in onnxruntime | of two opsets, of one a single memory | of six |
| images among vectors are so in C, ONNX and dump | one scheme, 500 observations, two C kernels | five, 100,000, all |
| a policy of images among vectors is checked | calibrated on 500 states | 10,000 |
| mutated programs of TorchScript are refused | 50 of each part | 5,000 |
| its float file agrees, and it saturates | one policy of an environment | all |
| its weights have 2^n levels | one policy of a cell, at w4pc | all, seven schemes |
| mutated files, drawn nets and numbers | a quarter of hypothesis's examples | all |
| Atari games are those of the wrappers | three games, of five lives, three and none; shorter | seven |
| training with a quantizer is what integers compute | 2 bits, 60 steps | 8, 4 and 2, 200 |
| a seed learns in a batch what it learns alone | two kinds, 60 updates | five, 200 |
| a seed of a whole run is what it is alone | not run | run |
| a run of many seeds has a curve, and exports what it learned | 4 points, 1,000 states | 20, 10,000 |
| a grid trains many seeds at once | quantized | in fp32 too |
| two policies under one id are found | in one process | by two workers |
| an exit code is the verdict | that of a refuted policy | of a supported one too |
| agents from the hub are the zoo's | one with statistics and one without | all |
| verdicts keep their error rate and power | 60 draws | 400 |
| verdicts on all starts keep their error rate | three kinds of returns | eight |
| mean errors of tied cells keep their error rate | 50 draws | 300 |
| sentences over cells and tasks keep theirs | 60 to 100 draws | 150 to 300 |
| selections are drawn again from the same policies | 100 times | 1,000 |
| workers of xdist write the same rows | not run: values and verdicts of two workers are | none and three |
| README's commands run | check, play and deploy | repair, prove and train too |
| nothing is trained twice | in one process | by two workers too |
| verdicts of workers become outcomes | inconclusive ones | refuted ones too |
| a part that was interrupted says so | without workers | with two too |
| a small run of actors | in int8 | in fp32 and fp16 too |
| a run of actors is predicted from a second of it | not run: of given times | run |
| killed trainings and benches | one kill of a training | two each |
| Ray loses a process | not run | three runs |
| a cluster of two nodes: broadcasts, deaths, grids, nightly, refusals | not run | one start of Ray |
| the training of docs/example_project runs | not run | run |
| the pages of docs/extending run word for word | an environment's; tests/extending runs the others' files | all |
| Yosys sizes a design, and its clock | not run: it compiles for a minute at first | run |
| designs are simulated | two foldings | fourteen |
| C around the kernels: heads, masks, observations | compiled plainly | optimized |
| sums of every path through the C kernels | two kernels; floats of two paths | all |
| sums as outputs are the golden model's in every backend | one scheme | two |
| masked actions are never done | in fp32 and int4acc | in w4 and int8 too |
| flights of committed policies are PyFlyt's | two | six |
| random flights are | five | twenty |
| games that meet are played once | of two, 300 steps | of seven, with and without patience, 5,000 |
| games that schemes share are those that are played | with sampled actions, of Breakout | by argmax too, of three |
| widths share their first half of a training | of one algorithm | of three |
| the frame limit ends a game | at two frames | at five |
| a run of several widths goes on where it was stopped | at two places | at six |
| an agent of actors learns a bandit | in bf16 | in fp32 too |
| an added algorithm trains | with a quantizer, 300 steps, scored on 6 episodes | in fp32 too, 600, 100 |
| costs in tests of what stands around them | of 50 calls, of code compiled plainly | 500, optimized |
| C for another processor gives the golden outputs | Cortex-A53 | Cortex-A76 too |
| streams, and tables of actions, are simulated | one net, two heads | five and three |
| tables that fall are simulated | two foldings, 2,000 inputs | nine, 100,000 |
| drawn nets of wide outputs are designs | two | fifteen |
| drawn nets return their sums in every backend | four | fifteen |
| one policy has one hash in every backend | at 2 bits, but in the simulated design | at 8 too, and there |
| a recipe trains | of PyBullet and of MuJoCo one | all four |
| games in training are those of the wrappers | of Breakout | of Pong too |
| MuJoCo's walkers are Gymnasium's, in every bit | 1,000 steps each | 10,000 |
| Bullet's walkers are the library's, in every bit | two, 1,000 steps twice | 10,000 |
| Bullet's worlds on used connections are new | 8 | 40 |
| a robot's episodes are those of Gymnasium | two of PyBullet, of DMC and of MuJoCo | all |
| a saved model in bf16 goes on | of one algorithm | of three |
| a run of many seeds survives kill -9 | its checkpoints are loaded | a process is killed |
| agents of the zoo play as published | two | all |
| the page fits its window, in light and dark | two of four | all |
| it fits its paper | with ten schemes, three feet | with one and three too, six |
| stored verdicts are decided again | twenty | all |
| search works from a disk | in a folder below | at the root too |

A cell is an algorithm in an environment, trained in one way; widths of quantization-aware training are one cell.
"""

import os
import re
from collections.abc import Iterable
from typing import TypeVar

import pytest
from hypothesis import settings

EXHAUSTIVE = bool(os.environ.get("QUARL_EXHAUSTIVE"))
Size = TypeVar("Size")
SHARE = 4  # of the examples that hypothesis draws

exhaustive = pytest.mark.skipif(not EXHAUSTIVE, reason="takes long; set QUARL_EXHAUSTIVE")


def choose(default: Size, exhaustive: Size) -> Size:
    """A size, a number of repetitions, or what is taken."""
    return exhaustive if EXHAUSTIVE else default


def draw_examples(count: int, *others: settings, **more: object) -> settings:
    """Hypothesis's settings for `count` examples, of which a share is drawn by default."""
    return settings(*others, max_examples=choose(max(10, count // SHARE), count), **more)


def pick_kernels(kernels: Iterable[str]) -> list[str]:
    """All of C's kernels, or by default the first, which rounds in floats, and the last: other sign, in integers."""
    listed = list(kernels)
    return choose([listed[0], listed[-1]], listed)


def pick_policies(names: list[str], *, per_environment: bool = False) -> list[str]:
    """All of these policies, or by default the first seed of every cell, or of every environment.

    Widths of quantization-aware training are one cell.
    """
    firsts: dict[str, str] = {}
    for name in sorted(names, key=lambda name: [int(part) for part in re.findall(r"seed(\d+)$", name)]):
        cell = re.sub(r"-qat\d+$", "-qat", name.rpartition("-seed")[0])
        firsts.setdefault(cell.split("-")[1] if per_environment else cell, name)
    return sorted(names) if EXHAUSTIVE else sorted(firsts.values())
