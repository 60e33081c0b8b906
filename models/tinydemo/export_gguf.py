"""Write the trained weights as GGUF, the file that llama.cpp loads. Needs numpy and gguf.

    python export_gguf.py MODEL_FOLDER OUT.gguf q8_0|f16
    python export_gguf.py MODEL_FOLDER OUT.gguf lora LORA.npz

MODEL_FOLDER has model.npz, tokenizer.json and config.json.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np

LORA_ALPHA = 16.0
"""Divided by the rank, 8, it gives the scale that the adapters are trained with: 2."""

SHOWN = {"<think>", "</think>", "<tool_call>", "</tool_call>"}
"""Special tokens that are part of an answer; all others are control tokens."""

TOOLS_TURN = (
    "{% if tools %}{% for m in messages %}{% if m.role == 'system' %}"
    "<|im_start|>system\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "<|im_start|>system\nYou can call these tools:"
    "{% for t in tools %}{{ '\\n' + t.function.name }}"
    "({{ t.function.parameters.properties.keys() | join(', ') }}){% endfor %}"
    "<|im_end|>\n{% endif %}"
)
"""The tools stand nearest to the question: what an agent says before them does not keep the model from calling one.

A line's end right behind a tag would be dropped, so that of a tool's line is written as text.
"""
TOOL_CALL = (
    '<tool_call>{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}}</tool_call>"
)
TURN = (
    "<|im_start|>{{ m.role }}\n"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}" + TOOL_CALL + "{% endfor %}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    + TOOLS_TURN
    + "{% for m in messages %}{% if not (tools and m.role == 'system') %}"
    + TURN
    + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def add_description(writer, config, kind):
    """Name, sizes and licence."""
    writer.add_name("tinydemo")
    writer.add_description("Tiny demo chat model trained on synthetic text only")
    writer.add_license("CC0-1.0")
    writer.add_context_length(config["T"])
    writer.add_embedding_length(config["dim"])
    writer.add_block_count(config["layers"])
    writer.add_feed_forward_length(config["ffn"])
    writer.add_head_count(config["heads"])
    writer.add_head_count_kv(config["kv"])
    writer.add_layer_norm_rms_eps(config["eps"])
    writer.add_rope_dimension_count(config["dim"] // config["heads"])
    writer.add_rope_freq_base(config["theta"])
    writer.add_vocab_size(config["vocab"])
    types = gguf.LlamaFileType
    writer.add_file_type(types.MOSTLY_Q8_0 if kind == "q8_0" else types.MOSTLY_F16)


def token_type(token, special):
    """How llama.cpp treats a token."""
    if token in SHOWN:
        return gguf.TokenType.USER_DEFINED
    return gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL


def add_tokenizer(writer, tokenizer):
    """Byte-level BPE, and the chat template."""
    vocabulary = tokenizer["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.get)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([token_type(token, special) for token in tokens])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_weights(writer, weights, kind):
    """Matrices quantised, vectors as they are."""
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    for name in weights.files:
        tensor = weights[name].astype(np.float32)
        if tensor.ndim == 1:
            writer.add_tensor(f"{name}.weight", tensor)
        elif kind == "q8_0":
            writer.add_tensor(f"{name}.weight", gguf.quantize(tensor, q8_0), raw_dtype=q8_0)
        else:
            writer.add_tensor(f"{name}.weight", tensor.astype(np.float16))


def add_adapter(writer, weights):
    """A LoRA adapter: two narrow matrices for each that it changes."""
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", LORA_ALPHA)
    for name in weights.files:
        base, side = name.rsplit(".", 1)
        writer.add_tensor(f"{base}.weight.lora_{side}", weights[name].astype(np.float32))


def main():
    """Write the file that the command line asks for."""
    folder, out, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    writer = gguf.GGUFWriter(out, "llama")
    if kind == "lora":
        add_adapter(writer, np.load(sys.argv[4]))
    else:
        add_description(writer, json.loads((folder / "config.json").read_text()), kind)
        add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()))
        add_weights(writer, np.load(folder / "model.npz"), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
