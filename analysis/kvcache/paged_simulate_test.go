package kvcache

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// listed yields the requests of a list.
type listed []Request

func (l *listed) Next() (Request, error) {
	if len(*l) == 0 {
		return Request{}, io.EOF
	}
	r := (*l)[0]
	*l = (*l)[1:]
	return r, nil
}

// drawn yields requests of the lengths given, with replacement, and never ends.
type drawn struct {
	lengths []Request
	random  *rand.Rand
}

func (d *drawn) Next() (Request, error) { return d.lengths[d.random.IntN(len(d.lengths))], nil }

// firstTurns are the lengths of the published conversations that fit the paper's limits; the
// test is skipped where the file is absent.
func firstTurns(t *testing.T) []Request {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "data", "sharegpt_lengths.csv"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no sharegpt_lengths.csv in shared/data beside the repository")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []Request
	for _, row := range rows[1:] {
		prompt, err := strconv.Atoi(row[0])
		if err != nil {
			t.Fatal(err)
		}
		output, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		if prompt <= 1024 && prompt+output <= 2048 {
			out = append(out, Request{Prompt: prompt, Output: output})
		}
	}
	return out
}

// TestPagedShareOfPaper is the row of vLLM in figure 2 of its paper: 12 GiB at 819,200 bytes a
// token, blocks of 16, a queue that is never empty. The paper has 96.3 % of the slots in tokens.
func TestPagedShareOfPaper(t *testing.T) {
	src := &drawn{firstTurns(t), rand.New(rand.NewPCG(1, 2))}
	r, err := Simulate(context.Background(), src, Options{
		Policy: Policy{Kind: Paged, Block: 16}, Capacity: 15728, Watermark: 0.01,
		Steps: 200000, Warmup: 2000, At: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v, batch %.2f, %d preemptions", r.Mean, r.Batch, r.Preemptions)
	if got := 100 * r.Mean.Token; math.Abs(got-96.3) > 1 {
		t.Errorf("token share %.2f %%, want 96.3 ± 1", got)
	}
}
