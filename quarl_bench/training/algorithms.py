"""The algorithms of this package, an entry each. Standard library only: what is named is imported when it is needed."""

from dataclasses import replace

from quarl_bench.policies.algorithm import Algorithm, SavedForm, Settings

READERS = "quarl_bench.policies.sources.sb3.model"
AWARE = "quarl_bench.training.sb3.aware"
MIXED = "quarl_bench.training.sb3.mixed_precision"
RECIPES = "quarl_bench.training.recipes"
ACTOR = ("actor", "actor_target")


def _is_ddpg(settings: Settings) -> bool:
    """Which is a TD3 that does without what TD3 adds."""
    return settings.get("policy_delay") == 1 and settings.get("target_noise_clip") == 0


_ACTOR_CRITIC = SavedForm(
    module="stable_baselines3.common.policies",
    parts=(
        *("log_std", "mlp_extractor", "action_net", "value_net", "features_extractor"),
        *("pi_features_extractor", "vf_features_extractor", "sde_features_extractor"),
    ),
    extractors=("pi_features_extractor", "features_extractor"),
    hidden=("mlp_extractor.shared_net", "mlp_extractor.policy_net"),
    output="action_net",
    activation="tanh",
    is_own=lambda settings: "gae_lambda" in settings and not {"target_kl", "n_epochs"} & settings.keys(),
)
A2C = Algorithm(
    name="a2c",
    model="stable_baselines3:A2C",
    recipes=f"{RECIPES}:a2c.toml",
    network=f"{READERS}:read_actor_critic",
    actor_critic=True,
    aware={
        "MlpPolicy": f"{AWARE}:AwareActorCriticPolicy",
        "mixed": f"{AWARE}:AwareMixedActorCriticPolicy",
    },
    half={"MlpPolicy": f"{MIXED}:MixedMlpActorCriticPolicy", "mixed": f"{MIXED}:MixedActorCriticPolicy"},
    normed="quarl_bench.training.sb3.layer_norm:NormedActorCriticPolicy",
    saved=_ACTOR_CRITIC,
)
PPO = replace(
    A2C,
    name="ppo",
    model="stable_baselines3:PPO",
    recipes=f"{RECIPES}:ppo.toml",
    saved=replace(_ACTOR_CRITIC, is_own=lambda settings: {"clip_range", "n_epochs"} <= settings.keys()),
)
RECURRENTPPO = Algorithm(
    name="recurrentppo",
    model="sb3_contrib.ppo_recurrent.ppo_recurrent:RecurrentPPO",
    recipes=f"{RECIPES}:recurrentppo.toml",
    network=f"{READERS}:read_recurrent_actor",
    actor_critic=True,
    extra="contrib",
    saved=replace(
        _ACTOR_CRITIC,
        module="sb3_contrib.common.recurrent.policies",
        parts=(*_ACTOR_CRITIC.parts, "lstm_actor", "lstm_critic", "critic"),
        hidden=("mlp_extractor.policy_net",),
        recurrent="lstm_actor",
        is_own=lambda _: True,
    ),
)
DQN = Algorithm(
    name="dqn",
    model="stable_baselines3:DQN",
    recipes=f"{RECIPES}:dqn.toml",
    network=f"{READERS}:read_q_network",
    networks=("q_net", "q_net_target"),
    continuous=False,
    aware={
        "MlpPolicy": f"{AWARE}:AwareQPolicy",
        "mixed": f"{AWARE}:AwareMixedQPolicy",
    },
    half={"MlpPolicy": f"{MIXED}:MixedMlpQPolicy", "mixed": f"{MIXED}:MixedQPolicy"},
    saved=SavedForm(
        module="stable_baselines3.dqn.policies",
        parts=("q_net", "q_net_target"),
        extractors=("q_net.features_extractor",),
        hidden=(),
        output="q_net.q_net",
        activation="relu",
    ),
)
_TD3_SAVED = SavedForm(
    module="stable_baselines3.td3.policies",
    parts=(*ACTOR, "critic", "critic_target"),
    extractors=("actor.features_extractor",),
    hidden=(),
    output="actor.mu",
    activation="relu",
    is_own=lambda settings: not _is_ddpg(settings),
)
TD3 = Algorithm(
    name="td3",
    model="stable_baselines3:TD3",
    recipes=f"{RECIPES}:td3.toml",
    network=f"{READERS}:read_actor",
    networks=ACTOR,
    head="tanh",
    discrete=False,
    aware={"MlpPolicy": f"{AWARE}:AwareActorPolicy"},
    saved=_TD3_SAVED,
)
DDPG = replace(
    TD3,
    name="ddpg",
    model="stable_baselines3:DDPG",
    recipes=f"{RECIPES}:ddpg.toml",
    saved=replace(_TD3_SAVED, is_own=_is_ddpg),
)
SAC = Algorithm(
    name="sac",
    model="stable_baselines3:SAC",
    recipes=f"{RECIPES}:sac.toml",
    network=f"{READERS}:read_sac_actor",
    networks=("actor",),
    head="tanh",
    discrete=False,
    saved=SavedForm(
        module="stable_baselines3.sac.policies",
        parts=("actor", "critic", "critic_target"),
        extractors=("actor.features_extractor",),
        hidden=("actor.latent_pi",),
        output="actor.mu",
        activation="relu",
        limited="actor.mu.0.weight",
    ),
)
