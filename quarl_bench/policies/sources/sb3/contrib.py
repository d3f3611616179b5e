"""Algorithms of sb3-contrib whose policies are read, and not trained here."""

from quarl_bench.policies.algorithm import ALGORITHMS, Algorithm, SavedForm

RECURRENT_PPO = Algorithm(
    name="recurrentppo",
    model="sb3_contrib.ppo_recurrent.ppo_recurrent:RecurrentPPO",
    recipes={},
    network="quarl_bench.policies.sources.sb3.model:read_recurrent_actor",
    actor_critic=True,
    saved=SavedForm(
        module="sb3_contrib.common.recurrent.policies",
        parts=(
            *("log_std", "mlp_extractor", "action_net", "value_net", "features_extractor", "pi_features_extractor"),
            *("vf_features_extractor", "lstm_actor", "lstm_critic", "critic"),
        ),
        extractors=("pi_features_extractor", "features_extractor"),
        hidden=("mlp_extractor.policy_net",),
        output="action_net",
        activation="tanh",
        recurrent="lstm_actor",
    ),
)


def list_readable() -> list[Algorithm]:
    """Every algorithm whose models and zips are read: those of the registry, and these."""
    return [*ALGORITHMS.values(), RECURRENT_PPO]
