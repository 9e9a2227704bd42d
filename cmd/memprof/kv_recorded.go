package main

import (
	"context"

	"github.com/memprof/memprof/analysis"
)

// simulateKV finds out what other policies would have done with the requests of the recordings.
func simulateKV(results []*analysis.Result) error {
	for _, result := range results {
		for i := range result.Devices {
			for _, kv := range result.Devices[i].KV {
				if err := kv.Simulate(context.Background()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
