"""Jobs whose iterations differ in what they allocate, on synthetic data from random weights.

    python3 samples/jobs/irregular.py --job qlora
    python3 samples/jobs/irregular.py --list

Nothing is downloaded, one card is enough. Runs of the same options have the same losses, bit by bit.
Each job takes some 10 seconds on an H200, of which the start is half.
"""

import argparse
import sys

import irregular_inference as inference
import irregular_sequences as sequences
import irregular_training as of_training
import irregular_unseen as unseen
import training

import torch

# Of each job: what it does, the function that builds it, and its iterations.
JOBS = {
    "qlora": ("4-bit weights, adapters, checkpointing, lengths that differ 16 times", of_training.qlora, 16),
    "moe64": ("64 experts, a router with noise", of_training.moe64, 8),
    "ring": ("sequence-parallel attention, blocks travel on another stream with record_stream", sequences.ring, 14),
    "pipeline": ("one rank of an interleaved pipeline of four stages", of_training.pipeline, 10),
    "fsdp2": ("sharded parameters, and a stream that is used once", of_training.fsdp2, 16),
    "diffusion": ("buckets of aspect ratios", of_training.diffusion, 14),
    "graphs": ("batches of graphs whose sizes differ", of_training.graphs, 16),
    "seq2seq": ("lengths in buckets; beam search between epochs", sequences.seq2seq, 14),
    "prefill": ("prompts of 8K to 256K tokens by chunks, then decoding", inference.prefill, 6),
    "loading": ("weights by blocks of 530 and 270 MiB, then captures of graphs", inference.loading, 18),
    "grpo": ("generation and training in turns, optimizer state in host memory meanwhile", inference.grpo, 4),
    "stash_soft": ("a cache of 77 GiB that evicts the oldest", inference.stash_soft, 8),
    "stash_comb": ("77 GiB of which every other block is replaced by larger ones", inference.stash_comb, 8),
    "detection": ("images of different sizes, and a matrix of all pairs of boxes", unseen.detection, 30),
    "serving": ("requests with keys and values of their own come and go", unseen.serving, 120),
    "growing": ("each step's sequences are longer than the last one's", unseen.growing, 60),
}


def main():
    parser = training.parser(__doc__, batch=None)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(iterations=0)
    parser.add_argument("--job", choices=list(JOBS))
    parser.add_argument("--list", action="store_true", help="list the jobs")
    parser.add_argument("--start-at", metavar="FILE", help="wait for this file before the card is touched")
    parser.add_argument("--stop-at", metavar="FILE", help="train until this file is there")
    opts = parser.parse_args()
    if opts.list:
        for name, (what, _, iterations) in JOBS.items():
            print(f"{name:12} {what} ({iterations} iterations)")
        return
    if not opts.job:
        parser.error("--job or --list is needed")
    _, build, iterations = JOBS[opts.job]
    opts.iterations = opts.iterations or iterations
    training.deterministic(opts)
    # With warn_only these backward passes are not deterministic.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    if opts.start_at:
        training.await_file(opts.start_at)
    training.train(build(opts), opts, until=training.until_file(opts.stop_at))
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
