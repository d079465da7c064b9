"""Models with random weights: nothing is downloaded."""

import torch

# Each is (class of transformers, its configuration, the sequence length of its rows).
SPECS = {
    "tiny": ("GPT2", {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 64, "vocab_size": 512}, 32),
    "gpt2-medium": ("GPT2", {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 1024}, 1024),
    "llama-1.1b": (
        "Llama",
        {
            "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
            "intermediate_size": 5632, "vocab_size": 32000, "max_position_embeddings": 2048,
        },
        1024,
    ),
    "llama-2.8b": (
        "Llama",
        {
            "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8,
            "intermediate_size": 8192, "vocab_size": 32000, "max_position_embeddings": 2048,
        },
        1024,
    ),
    "qwen2-0.5b": (
        "Qwen2",
        {
            "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
            "intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 2048, "tie_word_embeddings": True,
        },
        512,
    ),
}


def sequence(name):
    return SPECS[name][2]


def config(name, attention="sdpa"):
    import transformers

    family, settings, _ = SPECS[name]
    made = getattr(transformers, family + "Config")(**settings)
    made._attn_implementation = attention
    made.use_cache = False
    return made


def build(name, device, dtype, attention="sdpa"):
    """Gives the model on the device, its parameters in the dtype from the start."""
    import transformers

    transformers.logging.set_verbosity_error()
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = getattr(transformers, SPECS[name][0] + ("LMHeadModel" if SPECS[name][0] == "GPT2" else "ForCausalLM"))(config(name, attention))
    finally:
        torch.set_default_dtype(before)
    return model.to(device=device, dtype=dtype).train()


def blocks(model):
    """Gives the list of the model's blocks."""
    return max((m for m in model.modules() if isinstance(m, torch.nn.ModuleList)), key=len)


def batch(model, micro, length, device):
    ids = torch.randint(0, model.config.vocab_size, (micro, length), device=device)
    return {"input_ids": ids, "labels": ids}


def head(name):
    """Gives the line that describes a model, without making its tensors."""
    model = build(name, "meta", torch.float32)
    inside = sum(p.numel() for p in blocks(model).parameters())
    made = config(name)
    return {
        "model": name, "blocks": len(blocks(model)),
        "params": (total := sum(p.numel() for p in model.parameters())), "params_outside_blocks": total - inside,
        "largest": max(p.numel() for p in model.parameters()), "hidden": made.hidden_size, "sequence": sequence(name),
        "vocab": made.vocab_size, "tied": bool(made.tie_word_embeddings),
        "x_bytes_per_sample": made.hidden_size * sequence(name) * 4, "conv": False,
    }
