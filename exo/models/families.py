"""Which architectures mlx-lm shards by tensor."""

SAME_AS = {
    "mistral": "llama",
    "iquestcoder": "llama",
    "xverse": "llama",
    "kimi_k2": "deepseek_v3",
    "minimax_m2": "minimax",
}
"""Names in `config.json` that mlx-lm loads with another architecture's code (its `MODEL_REMAPPING`)."""

TENSOR_FAMILIES = frozenset(
    {
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "exaone_moe",
        "glm4_moe",
        "glm4_moe_lite",
        "gpt_oss",
        "kimi_k25",
        "llama",
        "longcat_flash",
        "minimax",
        "ministral3",
        "qwen2",
        "qwen3",
        "qwen3_5",
        "qwen3_moe",
        "step3p5",
    }
)
"""Those whose model class has `shard` in mlx-lm 0.32. A test compares the list with the installed mlx-lm."""


def supports_tensor(family: str) -> bool:
    """Whether mlx-lm can split the family's layers over ranks; the head counts must divide besides."""
    return SAME_AS.get(family, family) in TENSOR_FAMILIES
