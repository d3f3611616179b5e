"""docs/policies.md: what the queue of trainings lacks."""

import json

from tests.support.pages import load_script

QUEUE = """
[[task]]
algo = "ppo"
environments = ["cartpole"]
seeds = [0, 1, 2, 3]

[[task]]
algo = "sac"
environments = ["hopperv4"]
seeds = [0]
schemes = ["i6c2o8h16"]
multi_seed = true
"""


def test_what_is_missing_or_ended_early_has_its_hours(tmp_path):
    (tmp_path / "queue.toml").write_text(QUEUE)
    early = {"seconds": 900, "timesteps": 250, "processor": "some CPU", "device": "some GPU"}
    runs = {0: {"seconds": 720, "processor": "some CPU"}, 1: early}
    for seed, run in runs.items():
        folder = tmp_path / f"ppo-cartpole-seed{seed}"
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps({"recipe": {"timesteps": 1000}, "run": run}))
    section = load_script("queue_table").write_untrained(tmp_path / "queue.toml", tmp_path)
    assert section.splitlines()[-3:] == [
        "| `ppo-cartpole` | 1 | 250 of 1,000 | 1.0 | its own pace on some GPU |",
        "| `ppo-cartpole` | 2, 3 | 0 of 1,000 | 0.2 | recorded |",
        "| `sac-hopperv4-i6c2o8h16-lqcc` | 0 |  |  | no recipe |",
    ]
