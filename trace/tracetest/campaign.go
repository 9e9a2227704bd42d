package tracetest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Campaign is for tests that do one thing at every place where it can be done, or at random ones. `go test` runs a short
// form of each; `make campaign` sets MEMPROF_CAMPAIGN to the seconds that each may take, in which it tries more places. The
// result is that time, 0 for the short form, and random numbers, whose seed the test prints and MEMPROF_SEED sets.
func Campaign(t testing.TB) (long time.Duration, random *rand.Rand) {
	t.Helper()
	if text := os.Getenv("MEMPROF_CAMPAIGN"); text != "" {
		seconds, err := strconv.Atoi(text)
		assert.Must(t, err == nil && seconds >= 1, "MEMPROF_CAMPAIGN=%q: want the seconds that a test may take", text)
		long = time.Duration(seconds) * time.Second
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("MEMPROF_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("MEMPROF_SEED=%q: want a whole number", text)
		}
	}
	t.Logf("MEMPROF_SEED=%d", seed)
	return long, rand.New(rand.NewPCG(seed, 0))
}

// Rounds calls try with the numbers of rounds, from 0: so many, and after those in a campaign as many as its time is for. A test
// that has failed ends.
func Rounds(t testing.TB, long time.Duration, rounds int, try func(round int)) {
	t.Helper()
	end := time.Now().Add(long)
	round := 0
	for ; !t.Failed() && (round < rounds || time.Now().Before(end)); round++ {
		try(round)
	}
	t.Logf("%d rounds", round)
}
