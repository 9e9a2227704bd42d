package keyframes

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// Recall is the device after a wanted event: its live blocks, the layout of its arenas, and the bytes of the largest free
// chunk. An error says that the layout does not add up to the instant.
func (r *Recorder) Recall(of *ledger.Ledger, at ledger.Instant) (live []ledger.Block, m ledger.AddressMap, largest int64, err error) {
	arenas := make([]ledger.Contents, len(of.Arenas))
	put := func(l *lifetime) {
		if at.Seq < l.from || at.Seq >= l.to || of.Arenas[l.Arena].PausedAt(at.Seq) {
			return
		}
		c := &arenas[l.Arena]
		switch x := (ledger.Range{From: l.Addr, To: l.Addr + l.Size}); l.kind {
		case StretchMapped:
			c.Mapped = append(c.Mapped, ledger.Mapped{Range: x, Region: l.region})
		case StretchUntouched:
			c.Untouched = append(c.Untouched, x)
		default:
			b := l.Block
			b.Pending = l.kind == StretchPending
			c.Blocks = append(c.Blocks, b)
		}
	}
	for i := range r.gone {
		put(&r.gone[i])
	}
	r.present(of, put)
	for i := range arenas {
		for _, b := range arenas[i].Blocks {
			if !b.Pending {
				live = append(live, b)
			}
		}
	}
	slices.SortFunc(live, func(x, y ledger.Block) int { return cmp.Compare(x.Addr, y.Addr) })
	m, largest, err = of.Draw(r.device, at, arenas)
	return live, m, largest, err
}
