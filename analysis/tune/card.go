package tune

import "github.com/memprof/memprof/analysis/accounting"

// onCard counts requested bytes on a device of a card, and updates the greatest sums with what others use. What they
// need does not count if they are spared.
func (p *replay) onCard(device int32, requested int64, spared bool) {
	if p.card == nil {
		return
	}
	p.live[device] += requested
	others := int64(p.otherUsed[device])
	p.usage[device] = max(p.usage[device], int64(p.used[device])+others)
	if spared {
		return
	}
	p.needs[device] = max(p.needs[device], p.live[device]+others)
}

// outside judges memory that another library or the driver allocated, after free memory was unmapped for it.
func (p *replay) outside(o *op) {
	if p.card == nil {
		return
	}
	p.onCard(o.arena, 0, false)
	if p.used[o.arena]+o.bytes > p.card.Bytes {
		p.refuse(accounting.Refusal{Seq: o.seq, Device: o.arena, Outside: true})
	}
}

func (p *replay) refuse(r accounting.Refusal) {
	p.refused++
	if p.first != nil || p.card == nil {
		return
	}
	r.Reserved, r.Others = int64(p.used[r.Device]), int64(p.otherUsed[r.Device])
	p.first = &r
}
