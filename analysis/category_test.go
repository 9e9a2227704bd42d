package analysis

import (
	"testing"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Each category has its rule: a job of four iterations, at whose peak each of them has a block of a size of its own. Nothing but
// the weights, the optimizer's state and the input is labelled.
func TestCategories(t *testing.T) {
	const unit = 4 << 20
	r := modeltest.New()
	a := vmmArena(t, r)
	weight := alloc(t, a, 1*unit, "")
	label(r, weight, "category=weights\tname=net.weight")
	label(r, alloc(t, a, 13*unit, ""), "category=weights\tname=net.bias")
	for range 5 { // and none of cuBLAS's, though as large
		label(r, alloc(t, a, 32<<20, ""), "category=weights\tname=net.projection")
	}
	average := alloc(t, a, 2*unit, "") // of the weights: made before the first pass, kept to the end
	var last, cache uint64
	for i := range 4 {
		peak := i == 2 // which has what the others have not
		input := alloc(t, a, 3*unit, "")
		label(r, input, "category=inputs\tname=0")
		if cache != 0 {
			a.Free(cache, false)
		}
		cache = alloc(t, a, 4*unit, "") // goes in the next iteration
		endForward := phase(r, "forward")
		if i == 0 {
			alloc(t, a, 32<<20, "module=net.0") // cuBLAS's, of its handle
		}
		if last != 0 {
			a.Free(last, false)
		}
		saved := alloc(t, a, 5*unit, "module=net.0")
		for range 2 {
			a.Free(alloc(t, a, 32<<20, "module=net.0"), false)
		}
		inside := alloc(t, a, 6*unit, "module=net.0")
		a.Free(inside, false)
		logits := alloc(t, a, 7*unit, "module=net.1")
		endForward()
		logarithms := alloc(t, a, 9*unit, "")
		endBackward := phase(r, "backward")
		gradient := alloc(t, a, 10*unit, "")
		scratch := alloc(t, a, 11*unit, "")
		if peak {
			a.Free(alloc(t, a, 101*unit, ""), false) // cuDNN's: the peak
		}
		a.Free(scratch, false)
		a.Free(logarithms, false)
		a.Free(saved, false)
		a.Free(logits, false)
		endBackward()
		endOptimizer := phase(r, "optimizer")
		if i == 0 {
			alloc(t, a, 12*unit, "")
		}
		endOptimizer()
		if i == 0 {
			alloc(t, a, 1*unit, "") // an optimizer of one's own: shaped like the parameter
			for range 5 {
				alloc(t, a, 13*unit, "") // as many are no optimizer's
			}
		}
		last = gradient
		a.Free(input, false)
		r.Mark(int64(i))
	}
	a.Free(average, false)
	d := run(t, r, Options{}).Devices[0]
	want := map[string]int64{
		"weights": 1 + 13 + 5*8, "optimizer": 12 + 1, "copies": 2 + 4 + 5*13, "inputs": 3, "activations": 5, "loss": 7 + 9,
		"gradients": 10, "temporaries": 11, "workspace": 8 + 101,
	}
	got := map[string]int64{}
	for _, g := range d.Held.Categories.Groups {
		got[g.Name] = g.Requested / unit
	}
	assert.Diff(t, want, got, "units at the peak")
	sum, module := int64(0), map[string]string{}
	for _, u := range d.Held.Uses {
		sum += u.Requested
		module[u.Category.String()] = u.Module
	}
	assert.That(t, sum == d.Peak.T, "the categories have %d bytes, requested were %d", sum, d.Peak.T)
	assert.That(t, module["activations"] == "net.*" && module["weights"] == "net" && module["temporaries"] == "",
		"most of the categories comes from %v", module)
}
