"""Algorithms of sb3-contrib whose policies are read, and not trained here."""

from dataclasses import replace
from functools import cache

from quarl_bench.policies.algorithm import Algorithm, SavedForm, find_algorithm

READERS = "quarl_bench.policies.sources.sb3.model"
ARS = Algorithm(
    name="ars",
    model="sb3_contrib.ars.ars:ARS",
    recipes={},
    network=f"{READERS}:read_searched",
    head="tanh",
    saved=SavedForm(
        module="sb3_contrib.ars.policies",
        parts=("action_net",),
        extractors=("features_extractor",),
        hidden=(),
        output="action_net",
        activation="relu",
        is_squashed=lambda settings: "ARSLinearPolicy" not in str(settings["policy_class"].get("__init__")),
    ),
)
QRDQN = Algorithm(
    name="qrdqn",
    model="sb3_contrib.qrdqn.qrdqn:QRDQN",
    recipes={},
    network=f"{READERS}:read_quantiles",
    networks=("quantile_net", "quantile_net_target"),
    continuous=False,
    saved=SavedForm(
        module="sb3_contrib.qrdqn.policies",
        parts=("quantile_net", "quantile_net_target"),
        extractors=("quantile_net.features_extractor",),
        hidden=(),
        output="quantile_net.quantile_net",
        activation="relu",
        averaged=True,
    ),
)


@cache
def list_contrib() -> tuple[Algorithm, ...]:
    """Their entries; most are variants of stable-baselines3's own."""
    on_policy, sac = find_algorithm("a2c"), find_algorithm("sac")
    actor_critic, actor = on_policy.saved, sac.saved
    assert actor_critic is not None  # noqa: S101 (for the type checker)
    assert actor is not None  # noqa: S101
    trpo = replace(
        on_policy,
        name="trpo",
        model="sb3_contrib.trpo.trpo:TRPO",
        recipes={},
        saved=replace(actor_critic, is_own=lambda settings: "cg_max_steps" in settings),
    )
    return (
        ARS,
        replace(
            sac,
            name="crossq",
            model="sb3_contrib.crossq.crossq:CrossQ",
            recipes={},
            network=f"{READERS}:read_contrib_actor",
            saved=replace(actor, module="sb3_contrib.crossq.policies", parts=("actor", "critic"), normed=True),
        ),
        Algorithm(
            name="maskableppo",
            model="sb3_contrib.ppo_mask.ppo_mask:MaskablePPO",
            recipes={},
            network=f"{READERS}:read_masked_actor",
            continuous=False,
            actor_critic=True,
            masked=True,
            saved=replace(actor_critic, module="sb3_contrib.common.maskable.policies", is_own=lambda _: True),
        ),
        QRDQN,
        replace(
            sac,
            name="tqc",
            model="sb3_contrib.tqc.tqc:TQC",
            recipes={},
            network=f"{READERS}:read_contrib_actor",
            saved=replace(actor, module="sb3_contrib.tqc.policies"),
        ),
        trpo,
    )
