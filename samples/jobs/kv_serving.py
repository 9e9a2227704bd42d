"""Serves requests of given lengths with a Llama of random weights, its KV cache kept in one of three ways.

static      transformers' StaticCache: every sequence of a batch has room for the longest request
dynamic     transformers' DynamicCache: every sequence of a batch has the length of the longest so far
continuous  transformers' continuous batching: blocks of a pool, requests come and go at every step

All have the same memory for the KV cache. In the first two a batch is served until its last sequence
has ended; the next batch has as many requests, in order of arrival, as fit. Prints one line of JSON:
the requests, the batch that fitted, and, for the first two, the shares of the slots in the mean
over time: the lengths say what each step holds, and the job's own clock how long it lasted.
"""

import argparse
import csv
import dataclasses
import inspect
import json
import math
import random
import time

import torch
import transformers

COLUMNS = (("ContextTokens", "GeneratedTokens"), ("num_prefill_tokens", "num_decode_tokens"), ("prompt", "output"))


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", choices=("static", "dynamic", "continuous"), default="static")
    parser.add_argument("--lengths", help="CSV with a prompt's and an output's tokens a row; default: made up, log-normal")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--longest", type=int, default=2048, help="tokens of a request; longer ones are left out")
    parser.add_argument("--memory", type=int, default=256, help="MiB for keys and values")
    parser.add_argument("--block", type=int, default=32, help="tokens of a block, of the continuous cache")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def lengths(opts):
    """(prompt, output) of every request."""
    if opts.lengths is None:
        draw = random.Random(opts.seed)
        made = ((log_normal(draw, 1155, 1.0), log_normal(draw, 211, 0.9)) for _ in iter(int, 1))
        rows = (next(made) for _ in range(50 * opts.requests))
    else:
        with open(opts.lengths, newline="") as f:
            reader = csv.DictReader(f)
            names = [pair for pair in COLUMNS if set(pair) <= set(reader.fieldnames)]
            if not names:
                raise SystemExit("%s: no columns %s" % (opts.lengths, " or ".join("%s, %s" % pair for pair in COLUMNS)))
            rows = [(int(row[names[0][0]]), int(row[names[0][1]])) for row in reader]
    found = [(p, o) for p, o in rows if p >= 1 and o >= 1 and p + o <= opts.longest]
    return found[: opts.requests]


def log_normal(draw, mean, sigma):
    return max(1, round(draw.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)))


def llama(opts):
    torch.manual_seed(opts.seed)
    config = transformers.LlamaConfig(
        vocab_size=8192,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=opts.layers,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=opts.longest,
    )
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    # With random weights the end of a sequence is random; the request's length is used instead.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    token_bytes = 2 * opts.layers * config.num_key_value_heads * (config.hidden_size // config.num_attention_heads) * 2
    return model, token_bytes


class Ends(transformers.StoppingCriteria):
    """Each row of a batch stops at its own length. Notes when each step had its tokens."""

    def __init__(self, outputs, start):
        self.outputs = torch.tensor(outputs, device="cuda")
        self.start = start
        self.times = []

    def __call__(self, input_ids, scores, **kwargs):
        self.times.append(time.perf_counter())
        return self.outputs <= input_ids.shape[1] - self.start


def serve_batch(model, batch, cache):
    """Prompts of different lengths, padded on the left, until the last has its output. Returns the
    seconds from each step's tokens to those of the next."""
    longest = max(p for p, _ in batch)
    mask = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, (prompt, _) in enumerate(batch):
        mask[row, longest - prompt :] = 1
    tokens = torch.randint(1, 8192, mask.shape) * mask
    ends = Ends([o for _, o in batch], longest)
    model.generate(
        input_ids=tokens.cuda(),
        attention_mask=mask.cuda(),
        past_key_values=cache,
        max_new_tokens=max(o for _, o in batch),
        do_sample=False,
        disable_compile=True,
        stopping_criteria=transformers.StoppingCriteriaList([ends]),
    )
    return [after - before for before, after in zip(ends.times, ends.times[1:])]


def static_batches(requests, slots, longest):
    """As many, in their order, as the cache has rows, and as one row holds: the longest prompt, to
    which the others are padded, and the longest output."""
    batches = [[]]
    for request in requests:
        grown = batches[-1] + [request]
        held = max(p for p, _ in grown) + max(o for _, o in grown)
        if batches[-1] and (held > longest or len(grown) > slots // longest):
            batches.append([request])
        else:
            batches[-1] = grown
    return batches


def dynamic_batches(requests, slots):
    """As many, in their order, as fit at the length of the longest prompt and the longest output."""
    batches = [[]]
    for request in requests:
        grown = batches[-1] + [request]
        held = max(p for p, _ in grown) + max(o for _, o in grown)
        if batches[-1] and held * len(grown) > slots:
            batches.append([request])
        else:
            batches[-1] = grown
    return batches


def shares(batches, held_by, seconds):
    """Where the held slots are in the mean over time: in tokens, in tokens to come, in nothing; and the
    sequences at once. A batch's step lasts until the next has its tokens; with the last the batch ends.
    The token that ends a sequence is never put into the cache, and leaves its row at once."""
    token = reserve = capacity = running = total = 0
    for batch, lasts in zip(batches, seconds):
        longest = max(p for p, _ in batch)
        for step, last in enumerate(lasts):
            held = held_by(longest, step)
            live = [(p, o) for p, o in batch if step + 1 < o]
            token += last * sum(p + step for p, _ in live)
            reserve += last * sum(min(p + o - 1, p + held - longest) - p - step for p, o in live)
            capacity += last * held * len(batch)
            running += last * len(live)
            total += last
    return dict(token=token / capacity, reserve=reserve / capacity, internal=1 - (token + reserve) / capacity), running / total


def serve_continuously(model, requests, slots, block):
    """All requests at once, by transformers' scheduler; returns the outputs' tokens."""
    config = transformers.GenerationConfig(do_sample=False, max_new_tokens=max(o for _, o in requests), eos_token_id=-1, pad_token_id=0)
    wanted = {"block_size": block, "fa_page_size": block, "num_blocks": slots // block, "num_pages": slots // block, "max_batch_tokens": 2048, "use_cuda_graph": False}
    arguments = {"generation_config": config}
    known = inspect.signature(model.init_continuous_batching).parameters
    kind = getattr(transformers, "ContinuousBatchingConfig", None) or getattr(transformers.generation, "ContinuousBatchingConfig", None)
    if kind is not None and "continuous_batching_config" in known:
        fields = {field.name for field in dataclasses.fields(kind)}
        arguments["continuous_batching_config"] = kind(**{name: value for name, value in wanted.items() if name in fields})
    else:
        for name, value in wanted.items():
            setattr(config, name, value)
    manager = model.init_continuous_batching(**arguments)
    manager.start()
    draw = random.Random(2)
    try:
        for number, (prompt, output) in enumerate(requests):
            manager.add_request([draw.randrange(1, 8192) for _ in range(prompt)], request_id="r%d" % number, max_new_tokens=output)
        made, waiting, give_up = 0, len(requests), time.monotonic() + 300
        while waiting:
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                made += len(result.generated_tokens)
                waiting -= 1
            if not manager.is_running() or time.monotonic() > give_up:
                raise SystemExit("continuous batching stopped with %d requests left" % waiting)
    finally:
        manager.stop(block=True)
    return made


def main():
    opts = options()
    requests = lengths(opts)
    model, token_bytes = llama(opts)
    slots = (opts.memory << 20) // token_bytes
    line = dict(cache=opts.cache, requests=len(requests), token_bytes=token_bytes, slots=slots, tokens=sum(o for _, o in requests))
    torch.cuda.synchronize()
    start = time.perf_counter()
    if opts.cache == "continuous":
        line["tokens"] = serve_continuously(model, requests, slots, opts.block)
    else:
        if opts.cache == "static":
            batches = static_batches(requests, slots, opts.longest)
        else:
            batches = dynamic_batches(requests, slots)
        seconds = []
        for batch in batches:
            cache = transformers.StaticCache(config=model.config, max_cache_len=opts.longest) if opts.cache == "static" else transformers.DynamicCache(config=model.config)
            with torch.no_grad():
                seconds.append(serve_batch(model, batch, cache))
            del cache
        held_by = (lambda longest, step: opts.longest) if opts.cache == "static" else (lambda longest, step: longest + step)
        line["split"], line["running"] = shares(batches, held_by, seconds)
        line["batch"] = len(requests) / len(batches)
        line["steps"] = sum(max(o for _, o in batch) for batch in batches)
    torch.cuda.synchronize()
    line["seconds"] = round(time.perf_counter() - start, 3)
    print("kv_serving " + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
