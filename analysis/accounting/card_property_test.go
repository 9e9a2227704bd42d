package accounting_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// simCard is a card that several processes use, some of them recorded. Nothing is stepped
// through: what is in use at a time is the sum of the changes up to it. Times are in ms.
type simCard struct {
	changes []simChange
	procs   []*simProcess
}

type simChange struct {
	at    int64
	proc  int
	bytes int64
}

// used is what a process has in use at a time; -1 stands for the whole card.
func (c *simCard) used(proc int, at int64) (sum int64) {
	if proc < 0 {
		sum = 3 * mib // the driver's own
	}
	for _, change := range c.changes {
		if change.at <= at && (proc < 0 || change.proc == proc) {
			sum += change.bytes
		}
	}
	return sum
}

// simProcess is one process and what it truly has, after each of its events.
type simProcess struct {
	*ledgerJob
	card       *simCard
	number     int
	start, end int64
	now        int64
	truth      []simTruth // by seq
	state      simTruth
	windows    []simWindow
	blocks     map[int64]int64 // of a library
	top        int64
	hidden     []simChange // in no event
}

// simTruth is what a process has. At is the time of the event.
type simTruth struct {
	at             int64
	overhead       [4]int64 // context, modules, loads, graphs
	reserved, libs int64
}

func (s *simTruth) accounted() int64 { return s.reserved + s.libs + s.noted() }

func (s *simTruth) noted() (sum int64) {
	for _, bytes := range s.overhead {
		sum += bytes
	}
	return sum
}

// simWindow is a measurement that is written once all changes of the card are known.
type simWindow struct {
	seq                  int64
	begin, end           int64
	before, after, truth int64 // what the process's events account for at both, and what grew
}

func (p *simProcess) changes(at, bytes int64) {
	p.card.changes = append(p.card.changes, simChange{at, p.number, bytes})
}

// keep keeps the truth of the event that was just added.
func (p *simProcess) keep() {
	p.state.at = p.now
	for len(p.truth) < len(p.events) {
		p.truth = append(p.truth, p.state)
	}
}

func (p *simProcess) hiddenAt(at int64) (sum int64) {
	for _, h := range p.hidden {
		if h.at <= at {
			sum += h.bytes
		}
	}
	return sum
}

// load makes the driver take memory within a window.
func (p *simProcess) load(part int, begin, during, end, bytes int64) {
	before := p.state.accounted()
	p.changes(during, bytes)
	p.now = end
	p.add(end, trace.Event{Kind: trace.KindOverhead, Arena: trace.NoArena, Provided: bytes}, "")
	p.windows = append(p.windows, simWindow{int64(len(p.events) - 1), begin, end, before, p.state.accounted(), bytes})
	p.state.overhead[part] += bytes
	p.keep()
	p.truth[len(p.truth)-1].at = end
}

// simOverheads are the contexts of events of the parts.
var simOverheads = [4]string{"what=context", "what=module\tname=m", "what=library\tname=l", "what=graph"}

// live draws the life of a process: a context, then whatever comes.
func (p *simProcess) live(t *rapid.T) {
	size := func(name string, most int64) int64 { return rapid.Int64Range(1, most).Draw(t, name) * mib }
	p.now = p.start
	within := rapid.Int64Range(1, 8).Draw(t, "within")
	p.load(0, p.now, p.now+within, p.now+within+rapid.Int64Range(0, 1).Draw(t, "returns"), 64*mib+size("context", 200))
	for p.now < p.end {
		p.now += 1 + rapid.OneOf(rapid.Int64Range(0, 12), rapid.Int64Range(0, 400)).Draw(t, "wait")
		lag := rapid.Int64Range(0, 5).Draw(t, "lag")
		if p.now+10 >= p.end {
			break
		}
		switch rapid.SampledFrom([]string{"grow", "take", "give", "load", "load", "unload", "hide"}).Draw(t, "does") {
		case "grow":
			bytes := 2 * size("granules", 40)
			p.changes(p.now, bytes)
			p.now += lag
			p.state.reserved += bytes
			p.grows(p.now, p.top, bytes)
			p.top += bytes
		case "take":
			addr, bytes := int64(len(p.events)+1)<<32, size("taken", 90)
			p.blocks[addr] = bytes
			p.changes(p.now, bytes)
			p.now += lag
			p.state.libs += bytes
			p.takes(p.now, addr, bytes, "call=cudaMalloc\tlibrary=l.so")
		case "give":
			for _, addr := range slices.Sorted(func(yield func(int64) bool) {
				for addr := range p.blocks {
					if !yield(addr) {
						return
					}
				}
			}) {
				p.changes(p.now, -p.blocks[addr])
				p.now += lag
				p.state.libs -= p.blocks[addr]
				delete(p.blocks, addr)
				p.gives(p.now, addr)
				break
			}
		case "load":
			p.load(rapid.IntRange(1, 3).Draw(t, "part"), p.now, p.now+1+lag, p.now+lag+2, rapid.Int64Range(0, 60).Draw(t, "loaded")*mib)
		case "unload":
			part := rapid.IntRange(1, 3).Draw(t, "part")
			p.load(part, p.now, p.now+1+lag, p.now+lag+2, -p.state.overhead[part])
		case "hide":
			bytes := rapid.Int64Range(-p.hiddenAt(p.now)/mib, 50).Draw(t, "hidden") * mib
			p.hidden = append(p.hidden, simChange{p.now, p.number, bytes})
			p.changes(p.now, bytes)
		}
		p.keep()
	}
	p.end = max(p.end, p.now+1)
	p.changes(p.end, -p.card.used(p.number, p.end))
}

// measure fills in what the windows of a process measured: by its own use, or the card's.
func (p *simProcess) measure(how string) {
	part := func(seq int64) int {
		was := simTruth{}
		if seq > 0 {
			was = p.truth[seq-1]
		}
		for i := range was.overhead {
			if p.truth[seq].overhead[i] != was.overhead[i] {
				return i
			}
		}
		return 1
	}
	for i, w := range p.windows {
		e := &p.events[w.seq]
		text := simOverheads[part(w.seq)]
		if i == 0 {
			text = simOverheads[0]
		}
		whose := -1
		switch {
		case how == "process":
			whose = p.number
			if i > 0 {
				text += "\thow=process"
			}
		case i == 0 && how == "total":
			text += "\thow=total"
		case i == 0 && how == "own context":
			whose = p.number
		case i == 0:
			text += "\thow=device"
		}
		e.Provided = p.card.used(whose, w.end) - p.card.used(whose, w.begin) - (w.after - w.before)
		if i == 0 && how == "total" {
			e.Provided = p.card.used(-1, w.end)
		}
		e.Context = p.strings.Intern(text)
	}
}

// drawCard draws one to four processes, the first ones of which are recorded.
func drawCard(t *rapid.T) (card *simCard, recorded int) {
	card = &simCard{}
	n := rapid.IntRange(1, 4).Draw(t, "processes")
	recorded = rapid.IntRange(1, min(n, 2)).Draw(t, "recorded")
	for i := range n {
		start := rapid.Int64Range(50, 900).Draw(t, "start")
		// A process that comes and goes between two readings is not seen by any.
		p := &simProcess{ledgerJob: newLedgerJob(), card: card, number: i, start: start, end: start + rapid.Int64Range(210, 1500).Draw(t, "life"), blocks: map[int64]int64{}}
		p.live(t)
		card.procs = append(card.procs, p)
	}
	slices.SortStableFunc(card.changes, func(a, b simChange) int { return cmp.Compare(a.at, b.at) })
	return card, recorded
}

// read are the readings of the card every 100 ms, with those processes that are shown.
func (c *simCard) read(t *rapid.T, shown int) *accounting.Readings {
	var lines []string
	for at := int64(0); at < 4000; at += 100 {
		lines = append(lines, fmt.Sprintf("0 all=1 %d %d", at, c.used(-1, at)/mib))
		later := at + rapid.Int64Range(0, 2).Draw(t, "later")
		for _, p := range c.procs[:shown] {
			if later >= p.start {
				lines = append(lines, fmt.Sprintf("0 pid=%d %d %d", 71+p.number, later, c.used(p.number, later)/mib))
			}
		}
	}
	var tt testing.T
	return readingsOf(&tt, lines...)
}

// Whatever several processes on a card do, and however their driver overhead and the use of
// the card were measured: a part that is given as a number is what the process truly had;
// none is negative or above what was used; and with the rest they add up to that.
func TestPropertyAccountingOfASharedCard(t *testing.T) {
	numbers := 0
	rapid.Check(t, func(t *rapid.T) {
		card, recorded := drawCard(t)
		how := rapid.SampledFrom([]string{"process", "own context", "device", "total"}).Draw(t, "how")
		var readings *accounting.Readings
		whose := rapid.SampledFrom([]string{"processes", "processes", "card", "none"}).Draw(t, "read")
		switch whose {
		case "processes":
			readings = card.read(t, recorded)
		case "card":
			readings = card.read(t, 0)
		}
		var members []analysis.Member
		for _, p := range card.procs[:recorded] {
			p.measure(how)
			r, err := analysis.Run(modeltest.Source(p.events, 5), analysis.Options{Process: fmt.Sprint("p", p.number), Text: p.strings.Text, Moments: readings.Moments()})
			assert.NoError(t, err)
			members = append(members, analysis.Member{Result: r, Device: &r.Devices[0], PID: 71 + p.number, Alive: (p.end - 1) * ms})
		}
		analysis.Reconcile(members, readings, "")
		for i, m := range members {
			b := m.Device.Account
			for name, balance := range map[string]*accounting.Balance{"peak": &b.Peak, "end": &b.End} {
				checkRange(t, name, balance)
				owners := card.procs[:recorded]
				if balance.At.Seq >= 0 {
					owners = card.procs[i : i+1]
				} else if len(b.Processes) < 2 {
					continue // nothing was ever there
				}
				numbers += card.checkTruth(t, name, b, balance, owners)
			}
		}
	})
	assert.That(t, numbers != 0, "everything was unknown")
}

func checkRange(t *rapid.T, name string, b *accounting.Balance) {
	parts := []int64{
		b.At.T, b.At.Rounding, b.At.Slack, b.At.Pending, b.At.Reserve, b.At.External, b.Other(), b.Pools,
		b.Context, b.Modules, b.Loads, b.Graphs, b.Overhead(), b.Rest, b.Unexplained,
	}
	for i, bytes := range parts {
		if bytes < 0 || b.UsedUnknown == "" && bytes > b.Read.Used {
			t.Fatalf("%s: part %d is %d of %d: %+v", name, i, bytes, b.Read.Used, b)
		}
	}
	if b.UsedUnknown == "" && b.Sum()+b.Rest != b.Read.Used {
		t.Fatalf("%s: %d and %d more are not %d: %+v", name, b.Sum(), b.Rest, b.Read.Used, b)
	}
	if b.UsedUnknown != "" && b.UnexplainedUnknown == "" {
		t.Fatalf("%s: unexplained is known and used is not: %+v", name, b)
	}
}

// checkTruth holds the numbers of a balance against what its processes truly had, and returns
// how many there are.
func (c *simCard) checkTruth(t *rapid.T, name string, account *accounting.Account, b *accounting.Balance, owners []*simProcess) (numbers int) {
	var truth simTruth
	for _, p := range owners {
		s := p.at(b)
		for i := range truth.overhead {
			truth.overhead[i] += s.overhead[i]
		}
	}
	for i, bytes := range []int64{b.Context, b.Modules, b.Loads, b.Graphs} {
		if part := accounting.ContextPart << i; b.Unknown.Has(part) {
			continue
		}
		if numbers++; bytes != truth.overhead[i] {
			t.Fatalf("%s: %s is said to be %d, it is %d: %+v", name, simOverheads[i], bytes, truth.overhead[i], b)
		}
	}
	if b.UsedUnknown != "" {
		return numbers
	}
	assert.Must(t, c.wasRead(account, b, owners[0]),
		"%s: at no reading of this state were %d used and %d unexplained: %+v", name, b.Read.Used, b.Unexplained, b)
	return numbers + 1
}

// wasRead says whether, while the state of a balance lasted, there was a time at which its used
// and its unexplained memory were true.
func (c *simCard) wasRead(account *accounting.Account, b *accounting.Balance, p *simProcess) bool {
	number, until := p.number, b.Until
	if account.Scope != accounting.ScopeProcess {
		number = -1
	}
	if until < 0 {
		until = 4000 * ms
	}
	for at := b.Since/ms + 10; at <= until/ms-10; at++ {
		if c.used(number, at) == b.Read.Used && (b.UnexplainedUnknown != "" || p.hiddenAt(at) == b.Unexplained) {
			return true
		}
	}
	return false
}

// at is what the process truly has at the instant of a balance.
func (p *simProcess) at(b *accounting.Balance) simTruth {
	if b.At.Seq >= 0 {
		return p.truth[b.At.Seq]
	}
	found := simTruth{}
	for seq := range p.events {
		if p.events[seq].Time <= b.At.Time && b.At.Time < p.end*ms {
			found = p.truth[seq]
		}
	}
	return found
}
