package tune

import (
	"errors"
	"fmt"

	"github.com/memprof/memprof/bfc"
)

// Policy is one combination of the allocator's options.
type Policy struct {
	Growth bfc.Growth
	Step   uint64 // bytes, with growth bfc.Step
	Split  bfc.Split
	// Small is the size in bytes below which requests have arenas of their own; 0 is none.
	Small     uint64
	Trim      bfc.Trim
	Placement bfc.Placement
}

// String is the policy in words: "growth=needed split=always small=1048576 trim=iteration
// placement=planned".
func (p Policy) String() string {
	return fmt.Sprintf("growth=%s split=%s small=%d trim=%s placement=%s", p.GrowthText(), p.Split, p.Small, p.Trim, p.Placement)
}

// fine says whether arenas that are neither pools nor tagged have a handle for each granule: only
// so can granules be taken or trimmed one by one.
func (p *Policy) fine() bool { return p.Growth == bfc.Needed || p.Trim.When != bfc.TrimNever }

// GrowthText is what bfc.ParseGrowth reads.
func (p Policy) GrowthText() string {
	options := bfc.Options{Growth: p.Growth, Step: p.Step}
	return options.GrowthText()
}

// Choices are what to combine: of the policies in Growths, the growth and its step count.
type Choices struct {
	Growths    []Policy
	Splits     []bfc.Split
	Smalls     []uint64
	Trims      []bfc.Trim
	Placements []bfc.Placement
}

// Policies are all combinations, the growths outermost. An error says which choice cannot be replayed.
func (c *Choices) Policies() ([]Policy, error) {
	var all []Policy
	for _, p := range c.Growths {
		if p.Growth == bfc.None {
			return nil, errors.New("growth none takes the whole limit, whatever the job does: there is nothing to tune")
		}
		for _, p.Split = range c.Splits {
			for _, p.Small = range c.Smalls {
				for _, p.Trim = range c.Trims {
					if p.Trim.When == bfc.TrimPressure {
						return nil, errors.New("trim pressure depends on what other processes need, which a recording does not tell")
					}
					for _, p.Placement = range c.Placements {
						all = append(all, p)
					}
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("nothing to combine: a list of policies is empty")
	}
	return all, nil
}
