// Package kvserve is memprof kv without its printing: it reads the requests from flags, and serves them under each policy.
package kvserve

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/report/kv"
)

// Runs are simulations of the same loads.
type Runs struct {
	Load     *Load
	Rates    []float64 // requests a second; none: the times of the requests
	Options  kvcache.Options
	Policies []kvcache.Policy
}

// Simulate serves the load at every rate under every policy, as many at a time as there are cores. The results
// are in the order of the policies, and of the rates under each.
func (r *Runs) Simulate(ctx context.Context, k *kv.Simulation) error {
	rates := r.Rates
	if len(rates) == 0 {
		rates = []float64{0}
	}
	k.Results = make([]*kvcache.Result, len(r.Policies)*len(rates))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range r.Policies {
		options := r.Options
		options.Policy = p
		for j, rate := range rates {
			at := i*len(rates) + j
			all.Go(func() (err error) {
				k.Results[at], err = simulate(ctx, r.Load, options, rate)
				return err
			})
		}
	}
	return all.Wait()
}

func simulate(ctx context.Context, load *Load, options kvcache.Options, rate float64) (*kvcache.Result, error) {
	src, done, err := load.Open(rate)
	if err != nil {
		return nil, err
	}
	defer done()
	result, err := serving.Simulate(ctx, src, options)
	if err != nil {
		return nil, explain(ctx, options.Policy, load, err)
	}
	result.Rate = rate
	return result, nil
}

// explain says whose an error of a simulation is: ours, the user's who stopped it, or that of the requests.
func explain(ctx context.Context, policy kvcache.Policy, load *Load, err error) error {
	var fault *kvcache.StepError
	if errors.As(err, &fault) || ctx.Err() != nil {
		return fmt.Errorf("%s: %w", policy, err)
	}
	return load.Fault(err)
}
