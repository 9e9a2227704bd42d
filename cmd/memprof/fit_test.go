package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/memprof/memprof/analysis/plain"
)

// fitted is what `memprof fit --json` prints, as far as tests need it.
type fitted struct {
	Cards []struct {
		Allocator, Setting, Policy string
		Least                      int64  `json:"least_bytes"`
		Error                      *int64 `json:"least_error_bytes"`
		From                       *int64 `json:"least_from_bytes"`
		To                         *int64 `json:"least_to_bytes"`
	}
}

func (b *bench) fit(args ...string) (f fitted) {
	b.Helper()
	cmd, stderr := b.memprof(append([]string{"fit", "--json"}, args...)...)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		b.Fatalf("memprof fit: %v\n%s", err, stderr)
	}
	return f
}

// of returns the least card under a policy of memprof's.
func (f *fitted) of(policy string) int64 {
	for _, c := range f.Cards {
		if c.Policy == policy {
			return c.Least
		}
	}
	return 0
}

// TestFitHolds: a job completes on the card that fit found, and not on one that is 1 % smaller, where the simulated
// device and the hook decide.
func TestFitHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sample, err := filepath.Abs("../../samples/alexnet")
	if err != nil {
		t.Fatal(err)
	}
	b.record("run", "--", "memprof", "rerun", sample)
	found := b.fit(b.path("run"))
	for _, policy := range []string{"classic", "compact"} {
		least := found.of(policy)
		b.record("on", "--force", "--preset", policy, "--sim-memory", plain.ExactSize(uint64(least)), "--", "memprof", "rerun", sample)
		smaller := least / 100 * 99 &^ (2<<20 - 1)
		cmd, stderr := b.memprof("record", "-q", "--force", "--device", "sim", "--sim-memory", plain.ExactSize(uint64(smaller)), "--preset", policy, "-o", b.path("below"), "--", "memprof", "rerun", sample)
		if code := exitOf(cmd.Run()); code != 1 {
			t.Errorf("%s: exit code %d on %d bytes, 1 %% less than the least card of %d; want 1: some requests fail\n%s", policy, code, smaller, least, stderr)
		}
	}
}

// trained are the words of a job that trains with a batch: weights, their gradients and the optimizer's state stay,
// activations grow with the batch.
func trained(batch int) (words []string) {
	add := func(more ...string) { words = append(words, more...) }
	kib := func(n int) string { return strconv.Itoa(n) + "K" }
	add("print", "batch="+strconv.Itoa(batch), "begin", "init")
	const layers = 6
	for i := range layers {
		add("alloc", fmt.Sprintf("w%d", i), kib(9000+1700*i), "holds", fmt.Sprintf("w%d", i), "category=weights")
	}
	add("end", "init")
	for range 5 {
		add("begin", "forward")
		for i := range layers {
			add("alloc", fmt.Sprintf("a%d", i), kib(batch*(730+210*i)), "alloc", "t", kib(batch*333), "free", "t")
		}
		add("end", "forward", "begin", "backward")
		for i := layers - 1; i >= 0; i-- {
			add("alloc", fmt.Sprintf("g%d", i), kib(9000+1700*i), "holds", fmt.Sprintf("g%d", i), "category=gradients", "free", fmt.Sprintf("a%d", i))
		}
		add("end", "backward")
		for i := range layers {
			add("free", fmt.Sprintf("g%d", i))
		}
		add("iteration")
	}
	return words
}

// TestFitScale: the least card at a third size, from recordings at two, is within 3 % of that of a recording at that
// size, and so is the one from three recordings, with its error.
func TestFitScale(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := func(batch int) string { return b.path(fmt.Sprint("batch", batch)) }
	for _, batch := range []int{8, 16, 24, 40} {
		b.record(fmt.Sprint("batch", batch), append([]string{"--", b.job}, trained(batch)...)...)
	}
	real := b.fit(path(40))
	for _, sizes := range [][]int{{8, 16}, {8, 16, 24}} {
		args := []string{"--scale", "batch=5"}
		for _, batch := range sizes {
			args = append(args, path(batch))
		}
		predicted := b.fit(args...)
		for _, policy := range []string{"classic", "compact"} {
			got, want := float64(predicted.of(policy)), float64(real.of(policy))
			t.Logf("from %v, %s: %.1f MiB, recorded %.1f", sizes, policy, got/(1<<20), want/(1<<20))
			if math.Abs(got-want) > 0.03*want {
				t.Errorf("from %v, %s: %.0f bytes predicted at 40, a recording at 40 needs %.0f", sizes, policy, got, want)
			}
		}
		for _, c := range predicted.Cards {
			if recorded := real.of(c.Policy); c.From == nil || c.To == nil || recorded < *c.From || recorded > *c.To {
				t.Errorf("from %v, %s: %d bytes recorded, not between %v and %v", sizes, c.Policy, recorded, c.From, c.To)
			}
			if c.Error == nil || float64(*c.Error) > 0.2*float64(c.Least) {
				t.Errorf("from %v: the error of %s is %v, want one within 20 %% of %d", sizes, c.Policy, c.Error, c.Least)
			}
		}
	}
}

// TestFitScaleError: the error of the cards at another size has what only one of two recordings requests, which a line
// through the cards of the recordings does not see.
func TestFitScaleError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	errorOf := func(firsts, seconds string) int64 {
		for batch, module := range map[int]string{8: firsts, 16: seconds} {
			words := append(trained(batch), "in", "module="+module, "alloc", "extra", "900M")
			b.record(fmt.Sprint("batch", batch), append([]string{"--force", "--", b.job}, words...)...)
		}
		predicted := b.fit("--scale", "batch=3", "--sizes", "8,16", b.path("batch8"), b.path("batch16"))
		for _, c := range predicted.Cards {
			if c.Policy == "compact" && c.Error != nil {
				return *c.Error
			}
		}
		t.Fatalf("no error of compact: %+v", predicted.Cards)
		return 0
	}
	alike, differing := errorOf("net.fc", "net.fc"), errorOf("net.fc", "net.other")
	if differing < alike+400<<20 {
		t.Errorf("an error of %d bytes where 900 MiB are another request in each recording, %d where they are the same", differing, alike)
	}
}

// TestFitJobWithoutRoom: what a real job is refused, fit names.
func TestFitJobWithoutRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.record("run", "--", b.job, "alloc", "a", "100M", "in", "module=net.fc", "alloc", "b", "300M")
	cmd, _ := b.memprof("fit", "--card", "350MiB", b.path("run"))
	out, err := cmd.Output()
	if code := exitOf(err); code != 1 {
		t.Errorf("exit code %d on a card of 350 MiB, want 1", code)
	}
	for _, want := range []string{"does not fit", "a request of 300 MiB by net.fc", "the job must request 50 MiB less"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the answer lacks %q:\n%s", want, out)
		}
	}
	b.mustExit(0, "fit", "--card", "400MiB", b.path("run"))
}
