package kvcache

import (
	"context"
	"encoding/csv"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// shareGPT are the lengths of the conversations' first turns with a prompt of at most 1,024 tokens
// and at most 2,048 in all: 5,362. The prompt of a later turn has all of the turn before in it, so
// a turn that is shorter than that is the first of another conversation.
func shareGPT(t *testing.T) []Request {
	t.Helper()
	const path = "../../../shared/data/sharegpt_lengths.csv"
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the lengths of ShareGPT are not there: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var requests []Request
	before := math.MaxInt // tokens of the turn before, prompt and output
	for _, row := range rows[1:] {
		prompt, err1 := strconv.Atoi(row[0])
		output, err2 := strconv.Atoi(row[1])
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if prompt < before && prompt <= 1024 && prompt+output <= 2048 {
			requests = append(requests, Request{Prompt: prompt, Output: output})
		}
		before = prompt + output
	}
	if len(requests) != 5362 {
		t.Fatalf("%d first turns, want 5,362", len(requests))
	}
	return requests
}

// Figure 2 of the vLLM paper, in percent of 12 GiB at 819,200 bytes a token: OPT-13B on a card of
// 40 GB, under a queue that is never empty.
func TestFigureOfThePaper(t *testing.T) {
	lengths := shareGPT(t)
	const capacity = 12 << 30 / 819200
	if capacity != 15728 {
		t.Fatalf("%d slots, want 15,728", capacity)
	}
	for _, test := range []struct {
		policy                             Policy
		token, reserve, internal, external float64
		within                             float64 // points
	}{
		{Policy{Kind: Max, Length: 2048}, 20.4, 13.3, 57.3, 8.9, 3},
		{Policy{Kind: Pow2}, 26.8, 17.9, 13.6, 41.6, 7},
		{Policy{Kind: Oracle}, 38.2, 25.2, 0, 36.6, 3},
	} {
		o := Options{Policy: test.policy, Capacity: capacity, MaxLength: 2048, Steps: 200_000, Warmup: 2_000}
		r, err := Simulate(context.Background(), &drawn{lengths, rand.New(rand.NewPCG(1, 2))}, o)
		if err != nil {
			t.Fatal(err)
		}
		m := r.Mean
		t.Logf("%v: token %.1f, reserve %.1f, internal %.1f, external %.1f; %.2f run", test.policy,
			100*m.Token, 100*m.Reserve, 100*m.Internal, 100*(m.Rounding+m.Stranded+m.Idle), r.Batch)
		for _, share := range []struct {
			name      string
			got, want float64
		}{
			{"token", m.Token, test.token}, {"reserve", m.Reserve, test.reserve}, {"internal", m.Internal, test.internal},
			{"external", m.Rounding + m.Stranded + m.Idle, test.external},
		} {
			if math.Abs(100*share.got-share.want) > test.within {
				t.Errorf("%v: %s is %.1f %%, want %.1f within %v points", test.policy, share.name, 100*share.got, share.want, test.within)
			}
		}
		if test.policy.Kind == Max {
			if never := m.Stranded + m.Rounding + m.Idle; r.Batch != 7 || r.Peak != 7 || never != 1392.0/capacity {
				t.Errorf("%v requests of 2,048 run, and %v can never be used; want 7 and 1,392 of 15,728 slots", r.Batch, never)
			}
		}
	}
}

// Twenty thousand requests over an hour of arrivals, more than the memory can serve at once.
func TestAnHourOfRequestsTakesSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const requests, hour = 20_000, int64(time.Hour)
	random := rand.New(rand.NewPCG(3, 4))
	source := make(list, requests)
	for i := range source {
		source[i] = Request{
			Arrival: hour / requests * int64(i),
			Prompt:  min(1+int(random.ExpFloat64()*161), 1024), Output: min(1+int(random.ExpFloat64()*338), 1024),
		}
	}
	for _, text := range []string{
		"max:2048", "pow2", "oracle", "max:2048/firstfit", "pow2/firstfit", "oracle/firstfit",
		"max:2048/bestfit", "pow2/bestfit", "oracle/bestfit", "paged:16", "vmm:2MiB",
	} {
		policy, err := ParsePolicy(text)
		if err != nil {
			t.Fatal(err)
		}
		policy.TokenSize, policy.Tensors = 10240, 80 // of OPT-13B
		o := Options{Policy: policy, Capacity: 15728, MaxLength: 2048, StepTime: 25e6, Watermark: 0.01}
		this := source
		start := time.Now()
		r, err := Simulate(context.Background(), &this, o)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		t.Logf("%s: %v for %d steps, at most %d at once", text, took, r.Steps, r.Peak)
		if took > 5*time.Second || r.Finished != requests {
			t.Errorf("%s: %d of %d requests took %v, want less than 5 s", text, r.Finished, requests, took)
		}
	}
}
