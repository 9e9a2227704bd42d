package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/report/units"
)

// growthFlag is a growth with its step, which people write as a size.
type growthFlag struct {
	growth bfc.Growth
	step   uint64
}

func (g *growthFlag) options() bfc.Options { return bfc.Options{Growth: g.growth, Step: g.step} }

func (g *growthFlag) String() string {
	options := g.options()
	return options.GrowthText()
}

func (g *growthFlag) Set(text string) (err error) {
	if size, ok := strings.CutPrefix(text, "step:"); ok {
		bytes, err := units.ParseSize(size)
		if err != nil {
			return err
		}
		text = fmt.Sprintf("step:%d", bytes)
	}
	growth, step, err := bfc.ParseGrowth(text)
	if err != nil {
		return fmt.Errorf("unknown growth %q: use double, needed, step:SIZE or none%s", text, spell.DidYouMean(text, "double", "needed", "none"))
	}
	*g = growthFlag{growth, step}
	return nil
}

// Type is the word that stands for the value in the help.
func (g *growthFlag) Type() string { return "growth" }

// splitFlag is a split, as classic, always or a size.
type splitFlag bfc.Split

func (s *splitFlag) String() string { return bfc.Split(*s).String() }

func (s *splitFlag) Set(text string) error {
	split, err := bfc.ParseSplit(text)
	if err != nil {
		bytes, bad := units.ParseSize(text)
		if bad != nil || bytes == 0 {
			return fmt.Errorf("unknown split %q: use classic, always or a positive size%s", text, spell.DidYouMean(text, "classic", "always"))
		}
		split = bfc.Split(bytes)
	}
	*s = splitFlag(split)
	return nil
}

// Type is the word that stands for the value in the help.
func (s *splitFlag) Type() string { return "split" }

// trimFlag is a trim, with a duration as Go writes them.
type trimFlag bfc.Trim

func (t *trimFlag) String() string { return bfc.Trim(*t).String() }

func (t *trimFlag) Set(text string) error {
	if idle, ok := strings.CutPrefix(text, "idle:"); ok {
		duration, err := time.ParseDuration(idle)
		if err != nil || duration <= 0 {
			return fmt.Errorf("trim %q: idle takes a positive duration, like 500ms or 30s", text)
		}
		*t = trimFlag{bfc.TrimIdle, duration}
		return nil
	}
	trim, err := bfc.ParseTrim(text)
	if err != nil {
		return fmt.Errorf("unknown trim %q: use never, iteration, idle:DURATION or pressure%s", text, spell.DidYouMean(text, "never", "iteration", "pressure"))
	}
	*t = trimFlag(trim)
	return nil
}

// Type is the word that stands for the value in the help.
func (t *trimFlag) Type() string { return "trim" }

// placementFlag is a placement.
type placementFlag bfc.Placement

func (p *placementFlag) String() string { return bfc.Placement(*p).String() }

func (p *placementFlag) Set(text string) error {
	placement, err := bfc.ParsePlacement(text)
	if err != nil {
		return fmt.Errorf("%w%s", err, spell.DidYouMean(text, "best-fit", "planned"))
	}
	*p = placementFlag(placement)
	return nil
}

// Type is the word that stands for the value in the help.
func (p *placementFlag) Type() string { return "placement" }
