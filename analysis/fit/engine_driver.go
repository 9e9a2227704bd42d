package fit

import (
	"maps"
	"math"
	"time"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
)

// The driver keeps memory of its own for each graph that is instantiated: for the graph and for its nodes. On an H200 it grows by pages at
// some captures, and not as graphs are launched. A recording has readings of what is in use, ten a second: what is neither the
// allocator's nor other libraries' is the driver's, and grows from a reading to the next by what it kept for the captures between them.
// Graphs of a list have like nodes, so those that were not captured get as much each as those that were.

// readSpan is how long after a reading an event may come whose change the reading has: memory is in use before the call returns. A longer
// one, as of a large cache, ends before captures begin.
const readSpan = int64(2 * time.Millisecond)

// mostDriverLists bounds the lists whose graphs are counted at each reading: an engine has a few.
const mostDriverLists = 64

// driverReading is the driver's memory at a reading, and how many graphs there were, by list.
type driverReading struct {
	time, bytes int64
	graphs      map[string]int64
}

// driverReader follows the driver's memory.
type driverReader struct {
	times    []accounting.Used // of the device's readings, those that have not passed
	reserved int64
	others   int64            // of other libraries
	graphs   map[string]int64 // instantiated, by list
	seen     map[string]int64 // a copy, which readings have
	captured []string         // lists of captures that have ended: the next event says that their graphs are instantiated
	readings []driverReading  // none is below the one before
}

// before takes the next event before the reader does.
func (d *driverReader) before(e *trace.Event) {
	for len(d.times) > 0 && d.times[0].Time < e.Time {
		if d.times[0].Bytes <= accounting.LargestCard {
			d.read(d.times[0])
		}
		d.times = d.times[1:]
	}
	for _, list := range d.captured {
		if d.graphs[list] > 0 || len(d.graphs) < mostDriverLists {
			d.graphs[list]++
		}
	}
	if len(d.captured) > 0 {
		d.seen = maps.Clone(d.graphs)
	}
	d.captured = d.captured[:0]
}

// after takes it after the reader did. libraries are the bytes of other libraries now.
func (d *driverReader) after(e *trace.Event, device int32, libraries int64) {
	now := d.reserved
	switch {
	case e.Device != device:
	case e.Kind == trace.KindMap:
		now += e.Provided
	case e.Kind == trace.KindUnmap:
		now -= e.Provided
	}
	if now == d.reserved && libraries == d.others {
		return
	}
	d.reserved, d.others = now, libraries
	for n := len(d.readings); n > 0 && d.readings[n-1].time >= e.Time-readSpan; n-- { // it may have the change or not
		d.readings = d.readings[:n-1]
	}
}

// read keeps a reading. The driver's memory grows, so that one above the next has memory of a call that had not returned, as of a large cache:
// it goes, but for two alike in a row behind captures, after which the driver's memory shrank.
func (d *driverReader) read(at accounting.Used) {
	now := driverReading{at.Time, at.Bytes - d.reserved - d.others, d.seen}
	if now.bytes <= 0 { // the process is over
		return
	}
	n := len(d.readings)
	for ; n > 0 && d.readings[n-1].bytes > now.bytes; n-- {
		if len(d.seen) > 0 && n > 1 && d.readings[n-2].bytes == d.readings[n-1].bytes {
			return
		}
	}
	d.readings = d.readings[:n]
	same := func(r driverReading) bool { return r.bytes == now.bytes && maps.Equal(r.graphs, now.graphs) }
	if n > 1 && same(d.readings[n-1]) && same(d.readings[n-2]) { // the first and the last of them count
		n--
	}
	d.readings = append(d.readings[:n], now)
}

// driverRate is how the driver's memory grew with graphs of a list.
type driverRate struct {
	grown, graphs int64
	spans         int64 // of readings in a row, each of which is a page off at most
}

// of is what so many graphs take.
func (d driverRate) of(graphs int64) int64 {
	return int64(math.Round(float64(max(0, d.grown)) / float64(max(1, d.graphs)) * float64(graphs)))
}

// rates divides the growth. Where graphs of several lists were captured between two readings, those of lists that are known from other readings
// get theirs, and the others the rest, by their number.
func (d *driverReader) rates() map[string]driverRate {
	known := map[string]driverRate{}
	last := "" // list of the growth before
	var mixed []int
	for i := 1; i < len(d.readings); i++ {
		lists := d.between(i)
		if len(lists) != 1 {
			if len(lists) > 1 {
				mixed = append(mixed, i)
			}
			last = ""
			continue
		}
		for list, graphs := range lists {
			k := known[list]
			k.grown, k.graphs = k.grown+d.readings[i].bytes-d.readings[i-1].bytes, k.graphs+graphs
			if list != last {
				k.spans++
			}
			known[list], last = k, list
		}
	}
	shared := map[string]driverRate{}
	for _, i := range mixed {
		grown, graphs := d.readings[i].bytes-d.readings[i-1].bytes, int64(0)
		lists := d.between(i)
		for list, n := range lists {
			if k, is := known[list]; is {
				grown -= k.of(n)
				delete(lists, list)
				continue
			}
			graphs += n
		}
		for list, n := range lists {
			s := shared[list]
			shared[list] = driverRate{s.grown + driverRate{grown: grown, graphs: graphs}.of(n), s.graphs + n, s.spans + 1}
		}
	}
	maps.Copy(known, shared)
	return known
}

// between are the graphs that were instantiated between a reading and the one before it, by list.
func (d *driverReader) between(i int) map[string]int64 {
	lists := map[string]int64{}
	for list, n := range d.readings[i].graphs {
		if n -= d.readings[i-1].graphs[list]; n > 0 {
			lists[list] = n
		}
	}
	return lists
}

// graphDriver divides the driver's memory: what it keeps for graphs, of all sizes of their lists, and the rest.
func (p *Plan) graphDriver(d *driverReader) {
	var last driverReading
	if n := len(d.readings); n > 0 { // events may say it twice: one of what the driver took may come after a reading that has it already
		last = d.readings[n-1]
		p.Driver = last.bytes
	}
	rates := d.rates()
	shapes := map[string]int64{} // captured, by list
	for i := range p.Lists {
		shapes[p.Lists[i].Name] += int64(p.Lists[i].Captured)
	}
	all, recorded, margin := int64(0), int64(0), int64(0)
	for i := range p.Lists {
		l := &p.Lists[i]
		rate, known := rates[l.Name]
		if !known || shapes[l.Name] == 0 { // graphs without a request of their own are no shapes
			p.DriverUnknown = "no readings of what is in use before and after captures of " + l.Name
			break
		}
		sizes := int64(max(len(l.Sizes), l.Captured))
		graphs := d.graphs[l.Name] * sizes / shapes[l.Name] // a shape in pieces has several
		l.Driver = rate.of(graphs)
		all += l.Driver
		recorded += rate.of(last.graphs[l.Name] * int64(l.Captured) / shapes[l.Name])
		if missing := graphs - d.graphs[l.Name]*int64(l.Captured)/shapes[l.Name]; missing > 0 {
			margin += driverRate{grown: rate.spans * page, graphs: rate.graphs}.of(missing)
		}
	}
	if p.DriverUnknown != "" {
		for i := range p.Lists {
			p.Lists[i].Driver = 0
		}
		return
	}
	p.Driver, p.DriverGraphs, p.Margin = max(0, p.Driver-recorded), all, p.Margin+margin
}
