"""Tiny causal language models and records of unequal length."""

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

N_WORDS = 40


def make_gpt2(seed=0):
    torch.manual_seed(seed)
    # wide initial weights, or every model would give nearly the same distribution
    config = GPT2Config(
        vocab_size=N_WORDS, n_positions=32, n_embd=16, n_layer=3, n_head=2, initializer_range=0.4, use_cache=False
    )
    return GPT2LMHeadModel(config).eval()


def make_llama(seed=0):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=N_WORDS,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        initializer_range=0.4,
    )
    return LlamaForCausalLM(config).eval()


def make_opt(seed=0):
    """Blocks lie in a decoder inside the trunk, and a projection stands behind them instead of a norm."""
    torch.manual_seed(seed)
    config = OPTConfig(
        vocab_size=N_WORDS,
        hidden_size=16,
        word_embed_proj_dim=8,
        ffn_dim=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=32,
        do_layer_norm_before=False,
        init_std=0.4,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    return OPTForCausalLM(config).eval()


def make_gemma(seed=0):
    """Logits are capped behind the head."""
    torch.manual_seed(seed)
    config = Gemma2Config(
        vocab_size=N_WORDS,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.4,
        final_logit_softcapping=2.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Gemma2ForCausalLM(config).eval()


def make_records(n=9, seed=1):
    """Prompts of 1 to 4 tokens and completions of 1 to 7, padded with 0 on the right."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.zeros((n, 12), dtype=torch.int64)
    mask, labels = torch.zeros_like(tokens), torch.full_like(tokens, -100)
    for row in range(n):
        n_prompt = int(torch.randint(1, 5, (), generator=draw))
        stop = n_prompt + int(torch.randint(1, 8, (), generator=draw))
        tokens[row, :stop] = torch.randint(1, N_WORDS, (stop,), generator=draw)
        mask[row, :stop] = 1
        labels[row, n_prompt:stop] = tokens[row, n_prompt:stop]
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}
