"""Tiny random models of every family, made from transformers' own classes."""

import torch
import transformers
from transformers import AutoConfig

# 12 query heads and 4 key-value heads of 8: three query heads share a key-value head.
HIDDEN, HEADS, KEY_VALUE, HEAD, INNER, LAYERS, VOCABULARY, EXPERTS = 96, 12, 4, 8, 48, 2, 104, 4

# What configurations call the sizes; those that a class has are set.
SIZES = [
    (HIDDEN, "hidden_size n_embd d_model n_embed embed_dim word_embed_proj_dim"),
    (HEADS, "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads"),
    (KEY_VALUE, "num_key_value_heads num_kv_heads n_kv_heads"),
    (HEAD, "head_dim d_kv global_head_dim"),
    (INNER, "intermediate_size ffn_dim n_inner d_ff encoder_ffn_dim decoder_ffn_dim moe_intermediate_size "
    "shared_expert_intermediate_size ffn_hidden_size shared_intermediate_size intermediate_size_mlp"),
    (LAYERS, "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_decoder_layers"),
    (VOCABULARY, "vocab_size"),
    (EXPERTS, "num_experts num_local_experts n_routed_experts moe_num_experts"),
    (2, "num_experts_per_tok moe_k moe_topk top_k_experts"),
    (64, "max_position_embeddings n_positions max_seq_len n_ctx max_source_positions max_target_positions"),
    (0, "pad_token_id bos_token_id eos_token_id"),
]
NAMES = dict(heads=SIZES[1][1].split() + ["attention_heads"], key_value=SIZES[2][1].split(), inner=SIZES[4][1].split() + ["expert_ffn_hidden_size", "moe_shared_expert_intermediate_size"])
TINY = {name: size for size, names in SIZES for name in names.split()}
TEXT = dict(hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=KEY_VALUE, head_dim=HEAD,
            intermediate_size=INNER, num_hidden_layers=LAYERS, vocab_size=VOCABULARY,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, max_position_embeddings=64)
ENCODER = {key: size for key, size in TEXT.items() if key not in ("num_key_value_heads", "head_dim")}
VISION = dict(hidden_size=HIDDEN, num_attention_heads=HEADS, intermediate_size=INNER, num_hidden_layers=LAYERS,
              image_size=8, patch_size=4)
MROPE = dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 2]))
MLA = dict(q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
           num_key_value_heads=HEADS, n_group=1, topk_group=1, first_k_dense_replace=1, head_dim=8)
LINEAR = dict(linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=8, linear_value_head_dim=8,
              layer_types=["linear_attention", "full_attention"], decoder_sparse_step=1)

# model type -> what it needs beside the sizes; by name, several of one type.
ZOO = {
    "llama": {}, "mistral": {}, "mixtral": {}, "qwen2": {}, "qwen3": {}, "qwen2_moe": {}, "qwen3_moe": {},
    "llama-tied": dict(tie_word_embeddings=True), "llama-bias": dict(attention_bias=True, mlp_bias=True),
    "qwen3_next": LINEAR, "qwen3_5_text": LINEAR, "qwen3_5_moe_text": LINEAR,
    "deepseek_v2": MLA, "deepseek_v3": MLA, "deepseek_v3-noqlora": dict(MLA, q_lora_rank=None),
    "glm": {}, "glm4": {}, "glm4_moe": dict(n_group=1, topk_group=1, first_k_dense_replace=1, use_qk_norm=True),
    "gpt_oss": dict(layer_types=["sliding_attention", "full_attention"]),
    "gemma": {}, "gemma2": {}, "gemma3_text": {},
    "gemma3n_text": dict(altup_num_inputs=2, hidden_size_per_layer_input=8, laurel_rank=8, num_kv_shared_layers=0,
                         vocab_size_per_layer_input=104, intermediate_size=[48, 48],
                         layer_types=["sliding_attention", "full_attention"], activation_sparsity_pattern=[0.0, 0.0]),
    "phi": dict(num_key_value_heads=HEADS), "phi3": {}, "phimoe": {},
    "falcon": dict(new_decoder_architecture=False, multi_query=True, parallel_attn=True),
    "falcon-new": dict(new_decoder_architecture=True),
    "falcon-rw": dict(new_decoder_architecture=False, multi_query=False, parallel_attn=False, alibi=True, bias=True, num_kv_heads=HEADS),
    "bloom": {}, "mpt": dict(max_seq_len=64, expansion_ratio=1), "gptj": dict(rotary_dim=4), "codegen": dict(rotary_dim=4),
    "gpt_neo": dict(attention_types=[[["global", "local"], 1]], intermediate_size=INNER),
    "gpt_neox": {}, "gpt_neox_japanese": {}, "gpt2": {}, "gpt_bigcode": {}, "gpt_bigcode-mha": dict(multi_query=False), "opt": dict(do_layer_norm_before=True),
    "starcoder2": {}, "olmo": {}, "olmo2": {}, "olmo3": dict(layer_types=["sliding_attention", "full_attention"]), "olmoe": {},
    "granite": {}, "granitemoe": {}, "granitemoeshared": {}, "granitemoehybrid": dict(layer_types=["mamba", "attention"], mamba_n_heads=12, mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1),
    "cohere": dict(use_qk_norm=True), "cohere2": dict(layer_types=["sliding_attention", "full_attention"]),
    "dbrx": dict(ffn_config=dict(ffn_hidden_size=INNER, moe_num_experts=EXPERTS, moe_top_k=2),
                 attn_config=dict(kv_n_heads=KEY_VALUE, clip_qkv=8.0, rope_theta=10000.0)),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
                  mamba_d_state=8, mamba_dt_rank=8, use_mamba_kernels=False),
    "mamba": dict(state_size=8, expand=2, time_step_rank=8),
    "mamba2": dict(state_size=8, num_heads=24, head_dim=8, n_groups=1, expand=2),
    "bamba": dict(attn_layer_indices=[1], mamba_n_heads=24, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1),
    "nemotron": dict(num_key_value_heads=KEY_VALUE, head_dim=HEAD), "nemotron_h": dict(hybrid_override_pattern="M*-E", num_hidden_layers=4, layers_block_type=["mamba", "attention", "mlp", "moe"], mamba_num_heads=24, mamba_head_dim=8, ssm_state_size=8, n_groups=4, moe_shared_expert_intermediate_size=INNER, n_group=1, topk_group=1),
    # Its linear attention stays whole, and takes its number of heads from the same place.
    "minimax": dict(layer_types=["full_attention", "full_attention"], num_local_experts=EXPERTS), "minimax_m2": {},
    "ernie4_5": {}, "ernie4_5_moe": dict(moe_layer_start_index=1, moe_layer_end_index=-1, moe_num_shared_experts=2),
    "hunyuan_v1_dense": {}, "hunyuan_v1_moe": {}, "stablelm": dict(use_qkv_bias=True), "stablelm-norm": dict(qk_layernorm=True),
    "exaone4": dict(layer_types=["sliding_attention", "full_attention"]), "smollm3": dict(no_rope_layers=[1, 0], layer_types=None),
    "seed_oss": {}, "arcee": {}, "apertus": {}, "helium": {}, "lfm2": dict(full_attn_idxs=[1], layer_types=["conv", "full_attention"]),
    "dots1": dict(n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1), "persimmon": {}, "biogpt": {}, "xglm": dict(ffn_dim=INNER, attention_heads=HEADS),
    "longcat_flash": dict(MLA, ffn_hidden_size=INNER, expert_ffn_hidden_size=INNER, zero_expert_num=0, moe_topk=2, num_layers=1), "vaultgemma": {}, "diffllama": {}, "bitnet": {}, "zamba2": None, "doge": None,
    "glm4_moe_lite": MLA,
    "llama4_text": dict(layer_types=None, moe_layers=[1], interleave_moe_layer_step=2, no_rope_layers=[1, 0],
                        attention_chunk_size=64, use_qk_norm=True),
    "flex_olmo": {}, "jetmoe": dict(num_key_value_heads=6, kv_channels=8),
    # Vision and text.
    "llava": dict(text_config=dict(model_type="llama", **TEXT), vision_config=dict(model_type="clip_vision_model", **VISION)),
    "mistral3": dict(text_config=dict(model_type="mistral", **TEXT), vision_config=dict(model_type="pixtral", head_dim=8, **VISION)),
    "gemma3": dict(text_config=dict(model_type="gemma3_text", **TEXT), vision_config=dict(model_type="siglip_vision_model", **VISION), mm_tokens_per_image=4),
    "qwen2_vl": dict(text_config=dict(TEXT, **MROPE), vision_config=dict(depth=2, embed_dim=HIDDEN, hidden_size=HIDDEN, num_heads=HEADS, mlp_ratio=2)),
    "qwen2_5_vl": dict(text_config=dict(TEXT, **MROPE), vision_config=dict(depth=2, hidden_size=HIDDEN, out_hidden_size=HIDDEN, num_heads=HEADS, intermediate_size=INNER, fullatt_block_indexes=[1])),
    "qwen3_vl": dict(text_config=dict(TEXT, **MROPE), vision_config=dict(depth=2, hidden_size=HIDDEN, out_hidden_size=HIDDEN, num_heads=HEADS, intermediate_size=INNER, num_position_embeddings=16, deepstack_visual_indexes=[0])),
    "llama4": dict(text_config=dict(TEXT, num_local_experts=EXPERTS, intermediate_size_mlp=INNER, moe_layers=[1], no_rope_layers=[1, 0], attention_chunk_size=64),
                   vision_config=dict(VISION, vision_output_dim=HIDDEN, projector_input_dim=HIDDEN, projector_output_dim=HIDDEN, num_attention_heads=12)),
    "kimi_k25": None,
    # Encoders, and encoders with decoders.
    "bert": {}, "roberta": {}, "modernbert": dict(pad_token_id=0, cls_token_id=1, sep_token_id=2), "t5": dict(num_heads=HEADS), "t5-gated": dict(feed_forward_proj="gated-gelu"), "bart": {}, "whisper": dict(decoder_start_token_id=1, num_mel_bins=8),
    "vit": dict(image_size=8, patch_size=4),
    "clip": dict(text_config=dict(ENCODER, projection_dim=HIDDEN), vision_config=dict(VISION, projection_dim=HIDDEN), projection_dim=HIDDEN),
    "siglip": dict(text_config=dict(ENCODER, projection_size=HIDDEN), vision_config=VISION),
    "clip_vision_model": VISION, "siglip_vision_model": VISION,
    "mbart": {}, "pegasus": {}, "electra": {}, "distilbert": dict(dim=HIDDEN, hidden_dim=INNER, n_heads=HEADS), "xlm-roberta": {}, "deberta-v2": {}, "albert": dict(embedding_size=HIDDEN),
}


def config_of(name):
    """The configuration of the tiny model `name`."""
    kind, more = name.split("-")[0] if name not in ("deberta-v2", "xlm-roberta") else name, ZOO[name]
    plain = type(AutoConfig.for_model(kind))
    default = plain()
    is_property = lambda key: isinstance(getattr(type(default), key, None), property)
    has = lambda key: hasattr(default, key) and key not in type(default).attribute_map and not is_property(key)
    sizes = {key: size for key, size in TINY.items() if has(key)}
    sizes.update(more)
    return plain(**sizes)


AUTO = [transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText,
        transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForSpeechSeq2Seq, transformers.AutoModelForMaskedLM,
        transformers.AutoModel]


def class_of(config):
    """The class that makes a model of `config`, with an output matrix where there is one."""
    sequences = AUTO[2:4] if config.is_encoder_decoder else []
    pictures = AUTO[1:2] if hasattr(config, "vision_config") else []
    for auto in sequences + pictures + AUTO:
        if type(config) in auto._model_mapping.keys():
            return auto
    raise ValueError(f"no class for {type(config)}")


def model_of(name):
    """The tiny model `name` with random values; norms and biases are random, too."""
    torch.manual_seed(0)
    config = config_of(name)
    config.dtype = torch.float32
    config._attn_implementation = config._experts_implementation = "eager"
    model = class_of(config).from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.is_floating_point() and "inv_freq" not in key:
                value.add_(torch.randn_like(value) * 0.1)
    return model
