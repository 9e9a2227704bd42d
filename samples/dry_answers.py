"""Compares what dry runs answer with the same replays of recordings of the same jobs on a GPU.

    python3 samples/dry_answers.py samples/zoo/vgg16,PLAN samples/irregular/ring,PLAN

`memprof fit` replays both under PyTorch's own allocator, as it is and with expandable segments. Prints for each what it reserves and the
least card, how far the dry run's are from the recording's, and whether the greatest requested bytes are in the dry run's band, to
within a page. Then yes or no, and "within the band": five cards, and cards 3 % below and above the least card of the recording.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = ("native", "expandable_segments:True")
GIB = 1 << 30
CARDS = {"L4": 22.03 * GIB, "RTX-4090": 23.52 * GIB, "A100-40GB": 39.39 * GIB, "H100-80GB": 79.10 * GIB, "H200": 139.80 * GIB}
NEAR = 0.03
PAGE = 2 << 20  # of the GPU's memory, in bytes


def fitted(memprof, path):
    """What `memprof fit` says of a recording: the band of its greatest requested bytes, and rows by setting."""
    done = subprocess.run([memprof, "fit", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError("%s: %s" % (path, done.stderr[-300:]))
    found = json.loads(done.stdout)
    return found["compared"]["peak_requested_band"], {r["setting"]: r for r in found["rows"] if r["allocator"] == "torch"}


def answer(row, card):
    """What a dry run answers of a card: yes, no, or None within the band."""
    band = row["least_card_band"]
    return True if band["greatest"] <= card else False if card < band["least"] else None


def cards(row):
    """The cards that are asked about, with the answer of the recording."""
    least = row["least_card"]
    for card in [*CARDS.values(), least * (1 - NEAR), least * (1 + NEAR)]:
        yield card, least <= card


def width(band):
    return band["greatest"] / band["least"] - 1


def compare(job, recorded, planned):
    """A line of the table, and the numbers for the sums."""
    (truth, real), (band, dry) = recorded, planned
    inside = band["least"] - PAGE <= truth["greatest"] <= band["greatest"] + PAGE
    cells, numbers = [], {"inside": inside, "width": width(band), "reserved": [], "least": [], "answers": []}
    for setting in SETTINGS:
        if setting not in dry or setting not in real:
            continue
        for kind, name in (("reserved", "peak_reserved"), ("least", "least_card")):
            off = dry[setting][name] / real[setting][name] - 1
            cells.append(f"{off:+.2%}")
            numbers[kind].append(off)
        numbers["answers"] += [(answer(dry[setting], card), yes) for card, yes in cards(real[setting])]
    right = sum(got is yes for got, yes in numbers["answers"])
    unsure = sum(got is None for got, _ in numbers["answers"])
    shown = f"{width(band):.1%}, {'inside' if inside else '**outside**'}"
    return f"| {job} | {shown} | {' | '.join(cells)} | {right} of {len(numbers['answers'])}" + (f", {unsure} within the band |" if unsure else " |"), numbers


def sums(all_numbers):
    """The sums over all jobs, as lines of text."""
    for kind, text in (("reserved", "peak reserved"), ("least", "least card")):
        off = [n for numbers in all_numbers for n in numbers[kind]]
        yield f"{text}: median |error| {statistics.median(map(abs, off)):.2%}, from {min(off):+.2%} to {max(off):+.2%}"
    answers = [a for numbers in all_numbers for a in numbers["answers"]]
    right, unsure = sum(got is yes for got, yes in answers), sum(got is None for got, _ in answers)
    yield f"yes or no: {right} of {len(answers)} right, {unsure} within the band, {len(answers) - right - unsure} wrong"
    narrow = sum(numbers["width"] <= 0.05 for numbers in all_numbers)
    yield f"bands of requested bytes: {narrow} of {len(all_numbers)} at most 5 % wide, {sum(n['inside'] for n in all_numbers)} with the recorded bytes inside"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", metavar="RECORDING,PLAN")
    parser.add_argument("--memprof", default=os.path.join(os.path.dirname(HERE), "bin", "memprof"))
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="how many jobs are replayed at a time")
    opts = parser.parse_args()
    print("| job | band | native: reserved | least card | expandable: reserved | least card | yes or no |\n|---|---|---:|---:|---:|---:|---:|")
    found = []
    with concurrent.futures.ThreadPoolExecutor(opts.at_once) as pool:
        pairs = [job.split(",") for job in opts.jobs]
        for (recording, _), both in zip(pairs, pool.map(lambda pair: [fitted(opts.memprof, path) for path in pair], pairs)):
            line, numbers = compare(os.path.basename(recording), *both)
            print(line, flush=True)
            found.append(numbers)
    print()
    for line in sums(found):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
