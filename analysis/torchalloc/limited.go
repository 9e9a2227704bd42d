package torchalloc

import (
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
)

// limited is a device of a card: it refuses what the card has not free, as the driver does.
type limited struct {
	memory
	total, used uint64
	others      func() uint64 // bytes of the card that others than the allocator use
}

// endless is more memory than a job requests, so that only the card refuses.
const endless = 1 << 55

func (l *limited) fits(bytes uint64) bool { return l.used+l.others()+bytes <= l.total }

func (l *limited) Alloc(bytes uint64) (addr uint64, ok bool) {
	if !l.fits(bytes) {
		return 0, false
	}
	if addr, ok = l.memory.Alloc(bytes); ok {
		l.used += bytes
	}
	return addr, ok
}

func (l *limited) adopt(addr, bytes uint64) bool {
	if !l.fits(bytes) || !l.memory.adopt(addr, bytes) {
		return false
	}
	l.used += bytes
	return true
}

func (l *limited) Free(addr, bytes uint64) {
	l.used -= bytes
	l.memory.Free(addr, bytes)
}

func (l *limited) Map(addr, bytes uint64) bool {
	if !l.fits(bytes) || !l.memory.Map(addr, bytes) {
		return false
	}
	l.used += bytes
	return true
}

func (l *limited) Unmap(addr, bytes uint64) {
	l.used -= bytes
	l.memory.Unmap(addr, bytes)
}

// outside takes memory that another library or the driver allocated. PyTorch keeps what it has cached then, so
// that the allocation fails where the card has too little free.
func (j *job) outside(e *trace.Event, c accounting.Change) {
	d := j.device(c.Device)
	if c.Grown > 0 && !d.room.fits(0) {
		j.refuse(accounting.Refusal{Seq: e.Seq, Device: c.Device, Bytes: c.Grown, Outside: true})
	}
	j.count(d, false)
}

// count updates the greatest sums of a device of a card.
func (j *job) count(d *device, spared bool) {
	if j.card == nil {
		return
	}
	others := int64(j.others.Bytes(d.number))
	d.used, d.needed = max(d.used, int64(d.stats.Reserved.Now)+others), max(d.needed, int64(d.stats.Requested.Now)+others)
	if !spared {
		d.spared = max(d.spared, int64(d.stats.Requested.Now)+others)
	}
}

func (j *job) refuse(r accounting.Refusal) {
	j.refused++
	if j.first != nil || j.card == nil {
		return
	}
	r.Reserved, r.Others = int64(j.device(r.Device).stats.Reserved.Now), int64(j.others.Bytes(r.Device))
	j.first = &r
}
