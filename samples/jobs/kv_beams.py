"""Generates with beams, from a GPT-2 and a Llama of random weights, in a dynamic and a static cache.

Prints one line of JSON: for each kind of cache and number of beams, how many caches there were and
how many sequences, beams and returned sequences, they had.
"""

import json

import torch
import transformers

BATCH, PROMPT, TOKENS = 16, 24, 6


def models():
    torch.manual_seed(1)
    sizes = dict(vocab_size=512, bos_token_id=1, eos_token_id=2)
    gpt2 = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=128, **sizes)
    llama = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, **sizes
    )
    for config, kind in ((gpt2, transformers.GPT2LMHeadModel), (llama, transformers.LlamaForCausalLM)):
        model = kind(config).cuda().eval()
        # With random weights the end of a sequence is random; its length is fixed instead.
        model.generation_config.eos_token_id = None
        model.generation_config.pad_token_id = 0
        yield model


def main():
    found = {}
    for model in models():
        mask = torch.ones(BATCH, PROMPT, dtype=torch.long, device="cuda")
        mask[: BATCH // 2, : PROMPT // 3] = 0
        tokens = torch.randint(3, 512, mask.shape, device="cuda") * mask
        for cache in ("dynamic", "static"):
            for beams in (1, 2, 4):
                for sample in (False, True):
                    for returned in sorted({1, beams, 2 if sample else 1}):
                        if beams > 1 and returned > beams:
                            continue
                        output = model.generate(
                            tokens, attention_mask=mask, max_new_tokens=TOKENS, num_beams=beams, do_sample=sample,
                            num_return_sequences=returned, disable_compile=True, cache_implementation="static" if cache == "static" else None,
                        )
                        if output.shape != (BATCH * returned, PROMPT + TOKENS):
                            raise SystemExit("generate returned %s" % (tuple(output.shape),))
                        del output
                        if hasattr(model, "_cache"):
                            del model._cache  # transformers keeps a static cache for the next call
                        sums = found.setdefault("%s %d" % (cache, beams), dict(caches=0, sequences=0, most=0))
                        rows = BATCH * max(beams, returned)
                        sums["caches"] += 1
                        sums["sequences"] += rows
                        sums["most"] = max(sums["most"], rows)
    print("kv_beams " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
