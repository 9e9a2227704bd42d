package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

type op struct {
	kind trace.Kind
	addr int64
	size uint64
	arena int32
}

const mib = 1 << 20
const gran = 2 * mib

func load(path string) []op {
	run, err := trace.Open(path)
	if err != nil { panic(err) }
	r, err := run.Processes[0].NewReader()
	if err != nil { panic(err) }
	var ops []op
	arenas := map[int32]bool{}
	for {
		b, err := r.Next()
		if err != nil { break }
		for i := 0; i < b.Len(); i++ {
			e := b.Event(i)
			switch e.Kind {
			case trace.KindAlloc, trace.KindFree, trace.KindIteration, trace.KindFreeDone, trace.KindStreamUse:
				ops = append(ops, op{e.Kind, e.Addr, uint64(e.Requested), e.Arena})
				if e.Kind==trace.KindAlloc {arenas[e.Arena]=true}
			}
		}
	}
	fmt.Println(path, len(ops), "ops, arenas", len(arenas))
	return ops
}


type counted struct { *bfc.Device; takes, maps, grows int }
func (c *counted) Take(a, b uint64) bool { c.takes += int(b / gran); return c.Device.Take(a, b) }
func (c *counted) Map(a, b uint64) bool { c.maps += int(b / gran); return c.Device.Map(a, b) }
func (c *counted) Grow(b uint64) (uint64, uint64, bool) { c.grows++; return c.Device.Grow(b) }

func main() {
	small, _ := strconv.ParseUint(os.Args[1], 10, 64)
	for _, p := range os.Args[2:] {
		ops := load(p)
		sim(ops, small)
	}
}

func sim(ops []op, small uint64) {
	var heaps [2]*bfc.Allocator
	var mems [2]*counted
	for i := range heaps {
		d := &counted{Device: bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: gran, Base: uint64(i+1) << 44})}
		a, err := bfc.New(bfc.Options{Limit: 200 << 30, Growth: bfc.Needed, Split: bfc.SplitAlways, Trim: bfc.Trim{When: bfc.TrimIteration}}, d)
		if err != nil { panic(err) }
		heaps[i], mems[i] = a, d
	}
	live := map[int64]uint64{}
	var c, peakC, peakR uint64
	it := 0
	var sum float64
	reserved := func() uint64 { return heaps[0].Stats().Reserved + heaps[1].Stats().Reserved }
	for _, o := range ops {
		switch o.kind {
		case trace.KindIteration:
			if it > 0 { sum += 1-float64(peakC)/float64(peakR) }
			fmt.Printf("  it %2d: C %5d R %5d idle %.1f%%; takes %d maps %d grows %d\n", it, peakC>>20, peakR>>20, 100-100*float64(peakC)/float64(peakR), mems[0].takes+mems[1].takes, mems[0].maps+mems[1].maps, mems[0].grows+mems[1].grows)
			for _, m := range mems { m.takes, m.maps, m.grows = 0, 0, 0 }
			it++
			for _, h := range heaps { h.EndIteration(); h.Trim() }
			peakC, peakR = c, reserved()
		case trace.KindAlloc:
			k := 0
			if o.size < small { k = 1 }
			b, ok := heaps[k].Alloc(o.size)
			if !ok { panic("alloc") }
			live[o.addr] = b.Addr
			c += b.Size
			peakC = max(peakC, c); peakR = max(peakR, reserved())
		case trace.KindFree:
			addr := live[o.addr]
			delete(live, o.addr)
			b, err := heaps[0].Free(addr)
			if err != nil { if b, err = heaps[1].Free(addr); err != nil { panic(err) } }
			c -= b.Size
		}
	}
	fmt.Printf("  later mean idle %.2f%%\n", 100*sum/float64(it-1))
}
