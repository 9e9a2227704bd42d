package tune

import "github.com/memprof/memprof/analysis/accounting"

// onCard counts requested bytes on a device of a card, and updates the greatest sums with what others use.
func (p *replay) onCard(d *device, requested int64, spared bool) {
	if p.card == nil {
		return
	}
	d.live += requested
	d.usage, d.needs = max(d.usage, int64(d.used+d.others)), max(d.needs, d.live+int64(d.others))
	if !spared {
		d.spared = max(d.spared, d.live+int64(d.others))
	}
}

// outside judges memory that another library or the driver allocated, after free memory was unmapped for it.
func (p *replay) outside(o *op) {
	if p.card == nil {
		return
	}
	d := p.on(o.arena)
	p.onCard(d, 0, false)
	if d.used+o.bytes > p.card.Bytes {
		p.refuse(accounting.Refusal{Seq: o.seq, Device: o.arena, Outside: true})
	}
}

func (p *replay) refuse(r accounting.Refusal) {
	p.refused++
	if p.first != nil || p.card == nil {
		return
	}
	r.Reserved, r.Others = int64(p.on(r.Device).used), int64(p.on(r.Device).others)
	p.first = &r
}
