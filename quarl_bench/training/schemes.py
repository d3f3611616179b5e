"""Training policies by their recipes: one, as far as it is trained, or one seed under several schemes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from quarl_bench.errors import SpecError, StoreError
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.folder import Stored, load_stored, save_stored
from quarl_bench.spec import PolicySpec
from quarl_bench.system.atomic import lock_run, remove_folder
from quarl_bench.training.recipes import Recipe
from quarl_bench.training.sb3.aware import is_frozen
from quarl_bench.training.sb3.run import STATE, TrainingOptions, TrainingRun, close_environments

MACHINE = ("versions", "run")  # of a checkpoint; older ones do not say
ELSEWHERE = "choose another folder"  # where another process trains in this one


def train_policy(
    spec: PolicySpec, recipe: Recipe, folder: Path, checkpoint: Path, options: TrainingOptions | None = None
) -> Stored:
    """Train, publish to `folder`, and remove `checkpoint`; a finished `folder` is replaced only then.

    Raises StoreError when `checkpoint` exists and `options.resume` is not set or another process trains it,
    Interrupted when asked to stop.
    """
    options = options or TrainingOptions()
    check_unfinished(checkpoint, options)
    run = TrainingRun.start(spec, recipe, checkpoint, options)
    with lock_run(checkpoint, ELSEWHERE):
        model, callback = run.learn()
        curve = callback.curve
        if recipe.scheme and not is_frozen(model):
            raise SpecError(f"quant_delay {recipe.quant_delay:,}: no rollout began behind it; shorten it")
        if not curve or curve[-1]["timesteps"] < model.num_timesteps:  # else the run died between its end and here
            callback.evaluate()
        best = run.load_best()
        stored = save_stored(best.policy, folder, run.describe(best, curve) | run.describe_machine(model.num_timesteps))
        close_environments(model)
        remove_folder(checkpoint)
    return stored


def finish_policy(
    spec: PolicySpec, recipe: Recipe, folder: Path, checkpoint: Path, options: TrainingOptions | None = None
) -> Stored:
    """Publish to `folder` the best policy of an unfinished run, train no further, and remove `checkpoint`.

    The manifest's `run` says how far it was trained, and where. Raises StoreError where there is no checkpoint or
    another process trains it, SpecError where the quantizer of the scheme has not begun to round.
    """
    if not (checkpoint / STATE).exists():
        raise StoreError(f"{checkpoint}: no unfinished run is there; train, and stop it first")
    run = TrainingRun.start(spec, recipe, checkpoint, options or TrainingOptions())
    with lock_run(checkpoint, ELSEWHERE):
        state, best = run.read_state(), run.load_best()
        if recipe.scheme and isinstance(best.policy, PolicyNet):
            raise SpecError(f"{checkpoint}: {recipe.scheme} rounds nothing yet; go on with --resume")
        told = run.describe_machine(state["timesteps"]) | {key: state[key] for key in MACHINE if key in state}
        stored = save_stored(best.policy, folder, run.describe(best, state["curve"]) | told)
        remove_folder(checkpoint)
    return stored


def train_schemes(
    spec: PolicySpec, recipes: Mapping[str, Recipe], folder: Path, options: TrainingOptions | None = None
) -> Iterator[tuple[PolicySpec, Stored]]:
    """Train one seed under several schemes, to `folder`/<name>, and yield each policy when it is published.

    `recipes` are by scheme and wait for the same delay: up to there no scheme does anything, so the steps in full
    precision are trained once, and every scheme goes on from a copy of that checkpoint. With `options.resume` policies
    that are there are kept.
    """
    options = options or TrainingOptions()
    arms = {scheme: replace(spec, scheme=scheme) for scheme in recipes}
    checkpoints = {scheme: folder / f"{arm.name}.checkpoint" for scheme, arm in arms.items()}
    trunk = folder / f"{spec.name}.trunk"
    for unfinished in (trunk, *checkpoints.values()):
        check_unfinished(unfinished, options)
    kept = {
        scheme: load_finished_policy(arm, recipes[scheme].sha256, folder / arm.name)
        for scheme, arm in arms.items()
        if options.resume and (folder / arm.name).exists()
    }
    waiting = [scheme for scheme in arms if scheme not in kept]
    new = {checkpoints[scheme]: recipes[scheme] for scheme in waiting if not checkpoints[scheme].exists()}
    with lock_run(trunk, ELSEWHERE):
        if new:
            first = next(iter(recipes.values()))  # whichever: it rounds nothing yet
            _train_shared_steps(TrainingRun.start(spec, first, trunk, options), new)
        remove_folder(trunk)
    resumed = replace(options, resume=True)
    for scheme, arm in arms.items():
        if scheme in kept:
            yield arm, kept[scheme]
        else:
            yield arm, train_policy(arm, recipes[scheme], folder / arm.name, checkpoints[scheme], resumed)


def load_finished_policy(spec: PolicySpec, recipe: str, folder: Path) -> Stored:
    """The finished policy in `folder`; StoreError where it has another seed, or another recipe than of this hash."""
    stored = load_stored(folder)
    if (stored.metadata.get("recipe", {}).get("sha256"), stored.metadata.get("seed")) != (recipe, spec.seed):
        raise StoreError(f"{folder} was trained by another recipe or seed; choose another folder")
    return stored


def check_unfinished(checkpoint: Path, options: TrainingOptions) -> None:
    """StoreError when a run is unfinished and may not go on, or when another process trains it."""
    if checkpoint.exists() and not options.resume:
        with lock_run(checkpoint, ELSEWHERE):  # of one that is not unfinished, but under way
            pass
        raise StoreError(f"{checkpoint} holds an unfinished run; pass --resume to go on, or delete it to start over")


def _train_shared_steps(trunk: TrainingRun, recipes: Mapping[Path, Recipe]) -> None:
    """Train up to the delay and copy what stands there to the checkpoints of the recipes."""
    model, _ = trunk.learn(until=trunk.recipe.quant_delay)
    close_environments(model)  # it took another step to stop
    model, curve = trunk.load()
    best = trunk.load_best()
    for checkpoint, recipe in recipes.items():
        model.policy_kwargs["scheme"] = recipe.scheme
        replace(trunk, recipe=recipe, checkpoint=checkpoint).save(model, curve, best)
    close_environments(model)
