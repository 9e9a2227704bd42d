"""Reinforcement learning with the trainer and the engine on one card, in four variants.

A policy is trained on what an engine generates with the same weights; each step syncs the
weights, generates, and trains. The variants differ in what is resident on the card, and when:

    resident  both, always
    restart   the engine is destroyed for training, and built again from weights on the disk
    together  the engine is paused during training and resumed by one call; then the weights
              are synced, and the trainer is paused while the engine generates
    on_use    the engine's weights are resumed and synced, the trainer is paused, and only
              then the cache, buffers and graphs are resumed

The last two need memprof's allocator, so run it under `memprof record`, with or without
--no-trace; or the library torch_memory_saver, with --saver, and no memprof. Each variant has a
process of its own and prints one line of JSON. With torchrun the policy is sharded over the ranks
by FSDP2, whole weights are gathered into each rank's engine, and the ranks resume at the same time:

    memprof record -o run -- python3 samples/jobs/rl_colocated.py --variant on_use
    memprof record -o two -- torchrun --nproc-per-node 2 samples/jobs/rl_colocated.py --variant on_use
    memprof record --no-trace -- python3 samples/jobs/rl_colocated.py --card 16GiB

With --only-engine there is no trainer: the engine generates, is paused, and the job ends. The end of the
recording then says what a paused engine keeps of the card.
"""

import argparse
import contextlib
import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from statistics import median

# Under `memprof record` it is on the path already.
sys.path.append(os.environ.get("MEMPROF_PYTHON", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "hooks", "python")))
import memprof
import rl_model
import rl_saver
import smaller_card

import training  # sets what cuBLAS reads before CUDA starts
import torch
import torch.distributed as dist
from torch.nn import functional as F

VARIANTS = ("resident", "restart", "together", "on_use")
PAUSED = VARIANTS[2:]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", choices=VARIANTS, help="default: all, each in a process of its own")
    parser.add_argument("--saver", choices=("memprof", "torch_memory_saver"), default="memprof", help="what pauses memory: the library needs to run without memprof")
    parser.add_argument("--card", type=smaller_card.parse, default=0, metavar="SIZE", help="leave only so much of the card, as 16GiB")
    parser.add_argument("--shape", choices=rl_model.SHAPES, help="sizes of a known model, in place of layers, width, heads and words")
    parser.add_argument("--kv-fraction", type=float, default=0, metavar="SHARE", help="the KV cache has what the weights leave of this share of the card")
    parser.add_argument("--kv", type=smaller_card.parse, default=14 << 30, metavar="SIZE", help="memory of the KV cache (default 14GiB)")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only-engine", action="store_true", help="pause the engine after a rollout, and end")
    parser.add_argument("--try-together", action="store_true", help="after the last step resume the engine by one call, as the variant together does, and print what came of it")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--words", type=int, default=16384)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--length", type=int, default=128, help="tokens of a prompt and its answer")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 32], help="sequences of each wave of a rollout; a graph for each")
    parser.add_argument("--microbatch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    opts = parser.parse_args()
    opts.kv_heads, opts.inner, opts.gated = opts.heads, 4 * opts.width, False
    vars(opts).update(rl_model.SHAPES.get(opts.shape, {}))
    if opts.variant is None and "WORLD_SIZE" in os.environ:
        parser.error("under torchrun a call runs one variant: give --variant")
    if opts.only_engine and opts.variant not in PAUSED or opts.try_together and opts.variant not in PAUSED:
        parser.error("--only-engine and --try-together need a variant that pauses: " + " or ".join(PAUSED))
    return opts


class Ranks:
    """The processes of the job: one, or those that torchrun started."""

    def __init__(self):
        self.count = int(os.environ.get("WORLD_SIZE", 1))
        self.rank, self.device = (int(os.environ.get(name, 0)) for name in ("RANK", "LOCAL_RANK"))

    def start(self):
        torch.cuda.set_device(self.device)
        if self.count > 1:
            dist.init_process_group("nccl", device_id=torch.device("cuda", self.device))

    def together(self):
        torch.cuda.synchronize()
        if self.count > 1:
            dist.barrier()

    def gather(self, value):
        """The value of every rank."""
        if self.count == 1:
            return [value]
        values = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def stop(self):
        if self.count > 1:
            dist.destroy_process_group()


class Trainer:
    """The policy in float32, computed in bfloat16, and AdamW.

    Regions: trainer_weights, optimizer, and training for what lives only while it trains.
    """

    def __init__(self, opts, ranks, backup):
        self.opts, self.backup, self.sizes, self.trained = opts, backup, {}, False
        torch.manual_seed(opts.seed)
        before = torch.cuda.memory_reserved()
        with rl_saver.region("trainer_weights", backup=backup):
            with rl_model.on_cuda(torch.float32):
                self.policy = rl_model.Policy(opts)
            if ranks.count > 1:
                from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

                # Gathered in float32, a model of this size would have its weights twice.
                how = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)} if opts.shape else {}
                for block in self.policy.blocks:
                    fully_shard(block, **how)
                fully_shard(self.policy, **how)
        torch.cuda.empty_cache()
        self.sizes["weights"] = torch.cuda.memory_reserved() - before
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-4, fused=True)

    def tags(self):
        return ("trainer_weights", "optimizer") if self.trained else ("trainer_weights",)

    def train(self, sequences):
        """One step of REINFORCE: the reward is the mean token number of an answer."""
        answers = sequences[:, self.opts.prompt :].float()
        reward = answers.mean(dim=1)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with rl_saver.region("training"):
            for part, weight in zip(sequences.split(self.opts.microbatch), advantage.split(self.opts.microbatch)):
                self._backward(part.cuda(), weight.cuda(), len(sequences))
        self.sizes["gradients"] = sum(local(p.grad).nbytes for p in self.policy.parameters())
        with rl_saver.region("optimizer", backup=self.backup):
            self.optimizer.step()
        self.trained = True
        state = (v for values in self.optimizer.state.values() for v in values.values())
        self.sizes["optimizer"] = sum(local(v).nbytes for v in state)
        self.optimizer.zero_grad()
        torch.use_deterministic_algorithms(False)
        torch.cuda.empty_cache()
        return float(reward.mean())

    def _backward(self, tokens, weight, sequences):
        before = torch.cuda.memory_allocated()
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.policy(tokens[:, :-1], torch.arange(tokens.shape[1] - 1, device="cuda"), rl_model.causal)
            surprise = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").unflatten(0, (len(tokens), -1))
            loss = (surprise[:, self.opts.prompt - 1 :].mean(dim=1) * weight).sum() / sequences
        self.sizes["activations"] = max(self.sizes.get("activations", 0), torch.cuda.memory_allocated() - before)
        loss.backward()

    def pause(self, *tags):
        if tags := [tag for tag in tags or self.tags() if tag in self.tags()]:
            rl_saver.pause(*tags)

    def resume(self):
        rl_saver.resume(*self.tags())


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Job:
    """Trainer and engine on one card, and how each variant switches between them."""

    def __init__(self, opts, ranks, disk):
        self.opts, self.ranks, self.variant = opts, ranks, opts.variant
        self.backup = "host" if self.variant in PAUSED else None
        self.disk = os.path.join(disk, f"weights{ranks.rank}.pt")
        self.stream, self.engine, self.place = torch.cuda.Stream(), None, "building"
        self.restarts = []
        self.used = {"context": used()}  # of the card, at these moments
        random = torch.Generator().manual_seed(opts.seed + ranks.rank)
        self.prompts = torch.randint(opts.words, (sum(opts.batches), opts.prompt), generator=random)

    def build(self):
        """Makes the engine first: the trainer is not needed to capture graphs."""
        if self.variant != "restart":
            self._make_engine()
        if self.backup:
            self._pause_engine("engine_paused")
        warm_up_training()
        self.trainer = Trainer(self.opts, self.ranks, self.backup)

    def _pause_engine(self, moment):
        self.engine.pause()
        torch.cuda.empty_cache()
        self.used[moment] = used()
        if self.opts.saver == "memprof":  # the library hides its pauses from torch
            self.used[moment + "_reserved"] = torch.cuda.memory_reserved()

    def run_engine(self):
        """The engine alone: it generates, and rests."""
        self._make_engine()
        generated = self.engine.generate(self.prompts)
        self._pause_engine("engine_paused")
        time.sleep(0.5)  # used memory is read every 100 ms
        return {"generated": [digest(generated)], "used": self.used, "sizes": self.engine_sizes}

    def _make_engine(self):
        self.engine = rl_model.Engine(self.opts, self.opts.batches, self.opts.kv_fraction or self.opts.kv, self.stream, self.backup)
        self.engine_sizes = self.engine.sizes

    def _sync(self):
        with self.at("sync", "trainer_weights", "rollout_weights"):
            with rl_saver.region("training"):  # shards are gathered there
                self.engine.load(rl_model.parameters_of(self.trainer.policy))
            self.ranks.together()
            torch.cuda.empty_cache()

    def to_rollout(self):
        self.place = "resuming the engine"
        getattr(self, "_to_rollout_" + self.variant)()

    def _to_rollout_resident(self):
        self._sync()

    def _to_rollout_restart(self):
        times = [time.perf_counter()]
        with self.at("sync", "trainer_weights"):
            torch.save({name: tensor.to("cpu", torch.bfloat16) for name, tensor in rl_model.parameters_of(self.trainer.policy)}, self.disk)
        times.append(time.perf_counter())
        self._make_engine()
        times.append(time.perf_counter())
        self.engine.load(torch.load(self.disk, map_location="cpu").items())
        torch.cuda.synchronize()
        times.append(time.perf_counter())
        save, build, load = (round((b - a) * 1e3, 1) for a, b in zip(times, times[1:]))
        self.restarts.append({"save_ms": save, "build_ms": round(build - self.engine.capture_ms, 1), "capture_ms": self.engine.capture_ms, "load_ms": load})

    def _to_rollout_together(self):
        self.trainer.pause("optimizer")
        self.engine.resume()
        self._sync()
        self.trainer.pause("trainer_weights")

    def _to_rollout_on_use(self):
        self.trainer.pause("optimizer")
        self.engine.resume("rollout_weights")
        self._sync()
        self.trainer.pause("trainer_weights")
        self.engine.resume("kv_cache", "buffers", "graphs")

    def to_training(self):
        self.place = "going back to training"
        if self.backup:
            self.engine.pause()
            self.trainer.resume()
        elif self.variant == "restart":
            self.engine = None
            gc.collect()
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def at(self, name, *uses):
        self.place = name
        with memprof.phase(name, uses=uses):
            yield

    def try_together(self):
        """Resumes the engine by one call, with the trainer's weights resident: whether it fits, or why not."""
        self.place = "resuming the engine at once"
        self.trainer.pause("optimizer")
        try:
            self.engine.resume()
        except RuntimeError as error:
            if not short_of_memory(error):
                raise
            return {"fits": False, "error": str(error)}
        self.engine.pause()
        return {"fits": True}

    def run(self):
        out, back, generated, rewards = [], [], [], []
        for _ in range(self.opts.steps):
            out.append(self.timed(self.to_rollout))
            with self.at("rollout", *rl_model.ENGINE_TAGS):
                sequences = self.engine.generate(self.prompts)
            generated.append(digest(sequences))
            back.append(self.timed(self.to_training))
            with self.at("train", "trainer_weights", "optimizer", "training"):
                rewards.append(self.trainer.train(sequences))
        return {
            "to_rollout_ms": out,
            "to_training_ms": back,
            "switch_ms": median(a + b for a, b in zip(out, back)),
            "generated": generated,
            "rewards": rewards,
            "used": self.used,
            **({"restarts": self.restarts} if self.restarts else {}),
            **({"together": self.try_together()} if self.opts.try_together else {}),
            "sizes": {**self.trainer.sizes, **self.engine_sizes},
        }

    def timed(self, switch):
        """Milliseconds of a switch, from all ranks ready to all ranks done."""
        self.ranks.together()
        start = time.perf_counter()
        switch()
        self.ranks.together()
        return round((time.perf_counter() - start) * 1e3, 3)


def digest(sequences):
    return hashlib.sha256(sequences.numpy().tobytes()).hexdigest()[:16]


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


class PeakUse:
    """The most that was in use of the card meanwhile, looked at every 5 ms: torch_memory_saver hides its pauses from torch."""

    def __enter__(self):
        self.most, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self._look, args=(torch.cuda.current_device(),))
        self.thread.start()
        return self

    def _look(self, device):
        torch.cuda.set_device(device)
        while not self.over.wait(0.005):
            self.most = max(self.most, used())

    def __exit__(self, *error):
        self.over.set()
        self.thread.join()


def warm_up_training():
    """Has libraries allocate what they keep for the trainer's stream now, outside every tag, so that no pause unmaps it.

    What they keep for the engine's stream is in the engine's buffers.
    """
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.zeros(64, 64, dtype=dtype, device="cuda", requires_grad=True)
        F.linear(x @ x, x, x[0]).sum().backward()
    torch.cuda.synchronize()


def short_of_memory(error):
    """Whether the error is of torch, a library or memprof, and says that the card is too small."""
    if isinstance(error, memprof.PauseError):
        return error.code == memprof.PauseError.NO_MEMORY
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error) or "ALLOC_FAILED" in str(error)


def run(opts, ranks):
    """Runs one variant in this process. Returns its results."""
    found = {"variant": opts.variant, "saver": opts.saver, "ranks": ranks.count, "card": opts.card, "kv": opts.kv, "fits": True}
    with smaller_card.of(opts.card, ranks.device) as others, tempfile.TemporaryDirectory() as disk:
        ranks.start()
        job = None
        try:
            with PeakUse() as peak:
                job = Job(opts, ranks, disk)
                if opts.only_engine:
                    found.update(job.run_engine())
                else:
                    job.build()
                    found.update(job.run())
            found["peak_used"] = peak.most
        except RuntimeError as error:
            if not ((opts.card or opts.kv_fraction) and short_of_memory(error)):
                raise
            found.update(fits=False, place=job.place if job else "starting", error=str(error).splitlines()[0])
        free, total = torch.cuda.mem_get_info()
        found["peak"] = torch.cuda.max_memory_reserved()
        found["not_reserved"] = total - free - torch.cuda.memory_reserved() - others  # CUDA context, code, libraries
        if ranks.count > 1:
            if not found["fits"]:  # the other ranks wait for this one
                raise SystemExit(json.dumps(found))
            found["generated"] = ranks.gather(found["generated"])
            found["peak"] = max(ranks.gather(found["peak"]))
        if ranks.rank == 0:
            print(json.dumps(found), flush=True)
        ranks.stop()


def main():
    opts = options()
    if opts.variant is None:
        codes = [subprocess.run([sys.executable, __file__, *sys.argv[1:], "--variant", variant]).returncode for variant in VARIANTS]
        return max(codes)
    # The backward pass of these attentions adds up in whatever order their blocks finish.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    if opts.saver == "torch_memory_saver" and not rl_saver.preloaded():
        from torch_memory_saver import configure_subprocess

        with configure_subprocess():
            return subprocess.run([sys.executable, __file__, *sys.argv[1:]]).returncode
    rl_saver.use(opts.saver)
    run(opts, Ranks())
    return 0


if __name__ == "__main__":
    sys.exit(main())
