package requests

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/analysis/kvcache/serving"
)

func take(t *testing.T, src kvcache.Source, n int) []kvcache.Request {
	t.Helper()
	var out []kvcache.Request
	for range n {
		r, err := src.Next()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// TestSyntheticMeans draws enough that each mean is within 3 % of the published one.
func TestSyntheticMeans(t *testing.T) {
	for name, want := range map[string][2]float64{
		"sharegpt": {161.31, 337.99}, "alpaca": {19.31, 58.45}, "azure-conv": {1154.7, 211.1}, "azure-code": {2047.8, 27.9},
	} {
		src, err := Synthetic(name, Pace{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		const n = 200_000
		var prompt, output float64
		for _, r := range take(t, src, n) {
			if r.Prompt < 1 || r.Output < 1 || r.Arrival != 0 {
				t.Fatalf("%s: %+v", name, r)
			}
			prompt += float64(r.Prompt) / n
			output += float64(r.Output) / n
		}
		if math.Abs(prompt/want[0]-1) > 0.03 || math.Abs(output/want[1]-1) > 0.03 {
			t.Errorf("%s: means of %.2f and %.2f, want %.2f and %.2f", name, prompt, output, want[0], want[1])
		}
	}
	if _, err := Synthetic("poems", Pace{}); err == nil || !strings.Contains(err.Error(), "alpaca, azure-code, azure-conv, sharegpt") {
		t.Errorf("Synthetic(poems): %v, want the names", err)
	}
}

func TestArrivalsArePoisson(t *testing.T) {
	pace := Pace{Rate: 20, Duration: 1000e9, Seed: 3}
	src, _ := Synthetic("alpaca", pace)
	all, err := ReadAll(src)
	if err != nil {
		t.Fatal(err)
	}
	// 20,000 ± 3 standard deviations of 141, and gaps whose deviation is their mean.
	if n := len(all); n < 19_576 || n > 20_424 {
		t.Errorf("%d arrivals in 1,000 s at 20 a second", n)
	}
	var squares float64
	for i := 1; i < len(all); i++ {
		gap := float64(all[i].Arrival-all[i-1].Arrival) / 1e9
		if gap < 0 {
			t.Fatalf("request %d arrives before the one in front", i)
		}
		squares += gap * gap / float64(len(all))
	}
	if deviation := math.Sqrt(squares - 0.05*0.05); math.Abs(deviation-0.05) > 0.003 {
		t.Errorf("gaps deviate by %.4f s, want 0.05", deviation)
	}
	again, _ := Synthetic("alpaca", pace)
	if diff := cmp.Diff(all[:100], take(t, again, 100)); diff != "" {
		t.Error("the same seed made other requests", diff)
	}
	pace.Seed++
	other, _ := Synthetic("alpaca", pace)
	if cmp.Equal(all[:100], take(t, other, 100)) {
		t.Error("another seed made the same requests")
	}
}

func TestRequestsOfAFile(t *testing.T) {
	const text = "prompt,output\n10,5\n3,5\n20,1\n4,9\n"
	open := func() kvcache.Source {
		src, err := NewCSV(strings.NewReader(text), "r.csv")
		if err != nil {
			t.Fatal(err)
		}
		return src
	}
	got, err := ReadAll(Bounded(open(), Bounds{Prompt: 10, Length: 12}))
	if err != nil || len(got) != 1 || got[0].Line != 3 {
		t.Errorf("bounded: %+v, %v, want line 3 alone", got, err)
	}
	_, err = ReadAll(Limited(open(), "r.csv", 10))
	if !errors.Is(err, ErrTooLong) || err.Error() != "r.csv:4: prompt of 20 tokens is longer than the model's limit of 10" {
		t.Errorf("limited: %v", err)
	}
	// 20 tokens go on from 8, not from 15: the request above counts though it is left out.
	got, err = ReadAll(Bounded(open(), Bounds{Prompt: 4, FirstTurns: true}))
	if err != nil || len(got) != 2 || got[0].Line != 3 || got[1].Line != 5 {
		t.Errorf("first turns: %+v, %v, want lines 3 and 5", got, err)
	}
	got, err = ReadAll(Bounded(open(), Bounds{FirstTurns: true}))
	if err != nil || len(got) != 3 || got[2].Line != 5 {
		t.Errorf("first turns: %+v, %v, want all but line 4", got, err)
	}
	// What was said is 8 tokens, and a turn that adds nothing but an output has those; then it is 9.
	turns, err := NewCSV(strings.NewReader("prompt,output\n3,5\n8,1\n8,1\n"), "t.csv")
	if err != nil {
		t.Fatal(err)
	}
	got, err = ReadAll(Bounded(turns, Bounds{FirstTurns: true}))
	if err != nil || len(got) != 2 || got[1].Line != 4 {
		t.Errorf("first turns: %+v, %v, want lines 2 and 4", got, err)
	}
	got, err = ReadAll(Paced(open(), Pace{Rate: 1, Seed: 5}))
	if err != nil || len(got) != 4 || got[1].Prompt != 3 || got[1].Arrival <= got[0].Arrival {
		t.Errorf("paced: %+v, %v", got, err)
	}
	all, _ := ReadAll(open())
	src, err := Draw(all, Pace{})
	if err != nil {
		t.Fatal(err)
	}
	times := map[int]int{}
	for _, r := range take(t, src, 4000) {
		times[r.Line]++
	}
	for line := 2; line <= 5; line++ {
		if n := times[line]; n < 850 || n > 1150 {
			t.Errorf("line %d was drawn %d times of 4,000", line, n)
		}
	}
	if _, err := Draw(nil, Pace{}); err == nil {
		t.Error("drew from nothing")
	}
	ended, _ := Draw(all, Pace{Rate: 1, Duration: 1})
	if _, err := ended.Next(); err != io.EOF {
		t.Errorf("an arrival within 1 ns: %v", err)
	}
}

// TestPrefixed: all prompts begin with the same tokens, whose full blocks are found from the second request on.
func TestPrefixed(t *testing.T) {
	src := Prefixed(&kvtest.List{{Prompt: 10, Output: 1}, {Prompt: 30, Output: 1}}, 40)
	for _, want := range []int{50, 70} {
		r, err := src.Next()
		if err != nil || r.Prompt != want || len(r.Hashes) != 1 || r.HashTokens != 40 {
			t.Errorf("%+v, %v; want a prompt of %d tokens, of which 40 are known", r, err, want)
		}
	}
	src = Prefixed(&kvtest.List{{Prompt: 10, Output: 1}, {Prompt: 30, Output: 1}}, 40)
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 16}, Capacity: 160, At: -1}
	if r, err := serving.Simulate(context.Background(), src, o); err != nil || r.PrefixTokens != 32 {
		t.Errorf("found %d tokens, %v; want two blocks of 16", r.PrefixTokens, err)
	}
	src = Prefixed(&kvtest.List{{Prompt: 10, Output: 1, Hashes: []uint64{1}, HashTokens: 16}}, 40)
	if _, err := src.Next(); err == nil {
		t.Error("a prompt of known content got other tokens before it")
	}
}
