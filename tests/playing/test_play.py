"""What is watched is what is measured: the same episodes, step for step, with pictures."""

import json
from contextlib import closing
from dataclasses import replace
from typing import ClassVar

import gymnasium
import numpy as np
import pytest

from quarl_bench.cli import main
from quarl_bench.environments.registry import find_environment, identify_environment
from quarl_bench.errors import SpecError
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.experiments.environment_source import resolve_environment
from quarl_bench.playing.frame import BAR, GAP, compose, describe
from quarl_bench.playing.scenes import WINDOW, open_scenes
from quarl_bench.playing.stage import Panel, play_side_by_side
from quarl_bench.playing.video import check_suffix, write_video
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.quantization.scheme import Scheme
from tests.support.choices import ByMethod
from tests.support.fragile import make_fragile
from tests.support.places import POLICIES
from tests.support.strategies import make_policy

CARTPOLE = find_environment("cartpole")
SEED = 10_000


def make_player() -> PolicyNet:
    """It presses one button of Breakout."""
    layer = Linear(np.zeros((4, 4 * 84 * 84), np.float32), np.float32([0, 0, 0, 1]))
    transform = ObservationTransform((4, 84, 84), image=True)
    return PolicyNet(transform, Net((4, 84, 84), (layer,)), ActionHead(HeadKind.ARGMAX))


class Blank(gymnasium.Env):
    """Ends after three steps; its picture is what its class says."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    picture = np.zeros((20, 30, 4), np.uint8)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(4, np.float32), 1.0, self.steps == 3, False, {}

    def render(self):
        if isinstance(self.picture, Exception):
            raise self.picture
        return self.picture


@pytest.fixture
def blank(monkeypatch):
    """The environment that draws `picture`."""

    def register(picture, modes=("rgb_array",)):
        kind = type("Drawn", (Blank,), {"picture": picture, "metadata": {"render_modes": list(modes)}})
        monkeypatch.setitem(
            gymnasium.registry,
            "Blank-v0",
            gymnasium.envs.registration.EnvSpec("Blank-v0", entry_point=kind, max_episode_steps=10),
        )
        return identify_environment("Blank-v0")

    return register


def watch(policies, environment, **options):
    scenes = open_scenes(environment, [SEED] * len(policies))
    try:
        return list(play_side_by_side(policies, scenes, **options))
    finally:
        scenes.close()


@pytest.mark.needs("box2d")
def test_returns_are_those_of_the_evaluation():
    policy = make_fragile()
    forms = [("fp32", policy), ("w8", policy.quantize(Scheme.parse("w8"))), ("w2", policy.quantize(Scheme.parse("w2")))]
    last = watch(forms, CARTPOLE, every=25)[-1]
    for (name, form), panel in zip(forms, last, strict=True):
        measured = roll_out(form, CARTPOLE, [SEED])
        assert (panel.name, panel.gained, panel.steps) == (name, measured.returns[0], measured.lengths[0])
        assert panel.ended


class Fenced(ByMethod):
    """Refuses what its masks forbid; its picture is black."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode=None):
        super().__init__(gymnasium.spaces.MultiDiscrete([2, 3]))
        self.render_mode = render_mode

    def render(self):
        return np.zeros((20, 30, 3), np.uint8)


def test_masks_are_those_of_the_evaluation():
    plain, environment = make_policy(HeadKind.PARTS), resolve_environment(Fenced)
    policy = replace(plain, head=replace(plain.head, masked=True))
    with closing(open_scenes(environment, [SEED] * 2, masked=True)) as scenes:
        *_, last = play_side_by_side([("one", policy), ("w2", policy.quantize(Scheme.parse("w2")))], scenes)
    assert last[0].gained == roll_out(policy, environment, [SEED]).returns[0]
    assert [panel.steps for panel in last] == [20, 20]


@pytest.mark.needs("atari")
def test_games_are_those_of_the_evaluation():
    environment, policy = find_environment("breakout"), make_player()
    (panel,) = watch([("fp32", policy)], environment, every=50)[-1]
    measured = roll_out(policy, environment, [SEED])
    assert (panel.gained, panel.steps) == (measured.returns[0], measured.lengths[0])
    assert panel.picture.shape == (210, 160, 3)


@pytest.mark.parametrize(("every", "most", "steps"), [(1, None, [0, 1, 2, 3]), (2, None, [0, 2, 3]), (2, 1, [0, 1])])
def test_the_start_and_the_end_are_always_shown(blank, every, most, steps):
    shown = watch([("fp32", make_fragile())], blank(Blank.picture), every=every, most=most)
    assert [panels[0].steps for panels in shown] == steps
    assert [panels[0].ended for panels in shown][-1] == (most is None)
    assert shown[0][0].picture.shape == (20, 30, 3)


@pytest.mark.parametrize(
    ("picture", "modes", "said"),
    [
        (np.zeros((20, 30), np.uint8), ("rgb_array",), "render\\(\\) gave uint8 of shape \\(20, 30\\)"),
        (np.zeros((20, 30, 3)), ("rgb_array",), "render\\(\\) gave float64"),
        (RuntimeError("no OpenGL\nat all"), ("rgb_array",), "cannot be rendered \\(RuntimeError: no OpenGL\\)"),
        (Blank.picture, ("ansi",), "renders no rgb_array \\(its render_modes: ansi\\)"),
    ],
)
def test_what_cannot_be_rendered_is_one_line(blank, picture, modes, said):
    with pytest.raises(SpecError, match=said):
        watch([("fp32", make_fragile())], blank(picture, modes))


def test_an_environment_that_takes_no_render_mode_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "unseen.py").write_text(
        "import gymnasium, numpy, torch\n"
        "class Unseen(gymnasium.Env):\n"
        "    max_episode_steps = 5\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (1,), numpy.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def __init__(self): pass\n"
        "def make(): return torch.nn.Linear(1, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["play", "unseen:make", "--environment", "unseen:Unseen", "--scheme", "fp32", "--video", "play.gif"]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Unseen-v0 cannot be rendered: let it take render_mode='rgb_array' and list it in metadata[" in line


def test_without_a_display_there_is_no_window(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SpecError, match=r"no display .* --video play\.gif"):
        open_scenes(CARTPOLE, [SEED], WINDOW)


def make_panels(count):
    picture = np.full((40, 60, 3), 200, np.uint8)
    return [Panel(f"int{index}", picture, 12.5 * index, index, index == 1) for index in range(count)]


def test_captions_say_scheme_return_and_end():
    assert [describe(panel) for panel in make_panels(2)] == [
        ("int0", "return 0.0 at step 0"),
        ("int1", "return 12.5 ended at step 1"),
    ]


@pytest.mark.needs("video")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_frame_holds_every_panel_and_has_even_sides(count):
    frame = compose(make_panels(count), 91)
    height, width, _ = frame.shape
    assert (height % 2, width % 2) == (0, 0)
    assert width - count * (91 + GAP) + GAP in (0, 1)
    assert (frame[BAR + 5, :: 91 + GAP][:count] == 200).all()
    assert (frame[:BAR] < 100).any()  # the caption's letters


@pytest.mark.needs("video")
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_video_is_read_back_with_as_many_frames(tmp_path, suffix):
    path = tmp_path / f"play{suffix}"
    check_suffix(path)
    frames, encoded = [np.full((32, 64, 3), 20 * index, np.uint8) for index in range(6)], []
    assert write_video(path, frames, 10.0, lambda: encoded.append(suffix)) == path.stat().st_size
    assert len(encoded) == 6
    if suffix == ".gif":
        from PIL import Image, ImageSequence

        with Image.open(path) as video:
            assert [frame.convert("RGB").getpixel((32, 16)) for frame in ImageSequence.Iterator(video)] == [
                (value, value, value) for value in range(0, 120, 20)
            ]
    else:
        from imageio_ffmpeg import count_frames_and_secs

        assert count_frames_and_secs(str(path)) == (6, pytest.approx(0.6, abs=0.11))


@pytest.mark.needs("video")
@pytest.mark.parametrize("rate", [15.0, 30.0, 10.0])
@pytest.mark.parametrize("still", [False, True])
def test_a_gif_lasts_as_long_as_its_rate_says(tmp_path, rate, still):
    from PIL import Image, ImageSequence

    path, count = tmp_path / "play.gif", 25
    write_video(path, [np.full((32, 64, 3), 100 if still else 10 * index, np.uint8) for index in range(count)], rate)
    with Image.open(path) as video:
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(video)]
    assert sum(durations) == pytest.approx(1000 * count / rate, abs=5)
    assert len(durations) == (1 if still else count)
    assert max(durations) - min(durations) <= 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--video", "play.avi"], "a video is a .gif or a .mp4 file"),
        (["--scheme", "fp32,fp32"], "a scheme is named twice"),
        (["--scheme", "fp32,int99"], "int99"),
        (["--scheme", ",".join(f"w{bits}" for bits in range(2, 12))], "at most 8 fit side by side"),
        (["--video", "play.gif", "--render", "human"], "leave out one of the two"),
        (["--environment", "nowhere", "--video", "play.gif"], "unknown environment 'nowhere'"),
    ],
)
def test_wrong_options_are_one_line(arguments, said, capsys):
    assert main(["play", str(POLICIES / "ppo-cartpole-seed0"), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.needs("video", "box2d")
def test_the_command_writes_a_video_and_says_what_was_gained(tmp_path, capsys):
    video = tmp_path / "play.gif"
    arguments = ["play", str(POLICIES / "ppo-cartpole-seed0"), "--scheme", "fp32,int8", "--steps", "20", "--json"]
    assert main([*arguments, "--video", str(video), "--width", "80"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["returns"] == [[20.0, 20.0]]
    assert said["video"] == {"file": str(video), "frames": 11, "bytes": video.stat().st_size}
