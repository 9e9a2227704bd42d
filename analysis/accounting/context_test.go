package accounting_test

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// contextJob is a process with a context, 60 MiB of a library and nothing else.
func contextJob(mibs int64, text string) *ledgerJob {
	j := newLedgerJob()
	j.loads(10, mibs*mib, text)
	j.takes(40, 7<<30, 60*mib, "call=cudaMalloc\tlibrary=libnccl.so.2")
	return j
}

// A context is a number if the process's own use was measured and no reading speaks against
// it, or if the process had the card to itself. The other parts stay known.
func TestAccountingOfAContext(t *testing.T) {
	const (
		others, nobody = "0 all=1 0 2000", "0 all=1 0 3" // before the job
		of, unknown    = "0 pid=71 ", int64(-1)
		own, device    = "what=context", "what=context\thow=device"
	)
	alone := []string{nobody, "0 all=1 50 655", of + "50 646", "0 all=1 900 655", of + "900 646"}
	tests := []struct {
		name     string
		measured int64 // MiB
		text     string
		readings []string
		context  int64 // MiB from here on
		refuted  int64
		rest     int64 // unknown: so is what was used
		hidden   int64 // unexplained
		why      string
	}{
		{"of the process", 580, own, []string{others, of + "50 646", of + "900 646"}, 580, 0, 6, 6, ""},
		{"others took 3 GiB", 3721, device, []string{others, of + "50 646", of + "900 646"}, unknown, 0, 586, unknown, accounting.WhyWholeCard},
		{"others may have taken some", 580, device, []string{others, of + "50 646", of + "900 646"}, unknown, 0, 586, unknown, accounting.WhyWholeCard},
		{"nobody else was there", 580, device, alone, 580, 0, 6, 6, ""},
		{"somebody was listed", 580, device + "\tothers=2", alone, unknown, 0, 586, unknown, accounting.WhyOthers},
		{"somebody came", 580, device, append([]string{nobody, "0 all=1 50 855"}, alone[2:]...), unknown, 0, 586, unknown, accounting.WhyOthers},
		{"no other number", 655, "what=context\thow=total", alone, unknown, 0, 586, unknown, accounting.WhyTotal},
		{"more than was used with it", 3721, own, []string{others, of + "50 646", of + "900 646"}, unknown, 3721, 586, unknown, accounting.WhyRefuted},
		{"only the end was read with it", 3721, own, []string{others, of + "1 0", of + "900 646"}, unknown, 3721, 586, unknown, accounting.WhyRefuted},
		{"not counted alike to the byte", 600, own, []string{others, of + "50 646", of + "900 646"}, 600, 0, 0, unknown, ""},
		{"more than the reading leaves", 640, own, []string{others, of + "50 646", of + "900 646"}, unknown, 0, 586, unknown, accounting.WhyExceeds},
		{"read before it was there", 500, own, []string{others, of + "1 0", of + "12 100"}, 500, 0, unknown, unknown, ""},
		{"less than a library has", 30, own, []string{others, of + "50 59", of + "900 59"}, 30, 0, unknown, unknown, ""},
		{"the whole card", 500, own, []string{others, "0 all=1 50 2600", "0 all=1 900 2600"}, 500, 0, 2040, unknown, ""},
		{"of which others freed", 500, own, []string{others, "0 all=1 50 1900", "0 all=1 900 1900"}, 500, 0, 1340, unknown, ""},
		{"more than the whole card has", 3721, own, []string{others, "0 all=1 50 2646", "0 all=1 900 2646"}, unknown, 3721, 2586, unknown, accounting.WhyRefuted},
	}
	inMiB := func(bytes int64, why string) int64 {
		if why != "" {
			return unknown
		}
		return bytes / mib
	}
	for _, test := range tests {
		readings := readingsOf(t, test.readings...)
		r := contextJob(test.measured, test.text).analyze(t, "rank0", readings)
		analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0], PID: 71, Alive: 950 * ms}}, readings, "")
		for name, b := range map[string]*accounting.Balance{"peak": &r.Devices[0].Account.Peak, "end": &r.Devices[0].Account.End} {
			got := [...]int64{inMiB(b.Context, b.UnknownWhy), b.ContextRefuted / mib, inMiB(b.Rest, b.UsedUnknown), inMiB(b.Unexplained, b.UnexplainedUnknown)}
			if want := [...]int64{test.context, test.refuted, test.rest, test.hidden}; got != want || b.UnknownWhy != test.why {
				t.Errorf("%s, %s: context, refuted, rest, unexplained %d, want %d, since %q: %+v", test.name, name, got, want, test.why, b)
			}
		}
	}
}

// A simulated card is the process's own: what was measured of it needs no reading.
func TestAccountingOfAPrivateCard(t *testing.T) {
	j := contextJob(300, "what=context\thow=total")
	j.loads(50, 8*mib, "what=module\tname=m")
	r := j.analyze(t, "rank0", nil)
	analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0], Private: true}}, nil, "simulated")
	b := r.Devices[0].Account.End
	assert.That(t, b.Context == 300*mib && b.Modules == 8*mib && b.Unknown == 0 && b.UnexplainedUnknown == accounting.WhyUnread, "%+v", b)
}

// With the last context goes all driver overhead, whatever it was measured by, and what is
// returned without having been seen to be taken is no number.
func TestAccountingOfDriverOverheadThatGoes(t *testing.T) {
	j := newLedgerJob()
	j.loads(10, 300*mib, "what=context")
	j.loads(20, 90*mib, "what=library\tname=l\thow=process")
	j.loads(30, 5*mib, "what=pool\tname=p")
	j.takes(40, 7<<30, 60*mib, "call=cudaMalloc\tlibrary=libnccl.so.2")
	j.loads(50, -395*mib, "what=context")
	j.loads(60, 200*mib, "what=context")
	j.loads(70, -8*mib, "what=graph\thow=process")
	r := j.analyze(t, "rank0", nil)
	analysis.Reconcile([]analysis.Member{{Result: r, Device: &r.Devices[0]}}, nil, "")
	b := r.Devices[0].Account.End
	assert.That(t, b.Context == 200*mib && b.Loads == 0 && b.Pools == 0 && b.Graphs == 0 && b.Unknown == accounting.GraphsPart && b.UnknownWhy == accounting.WhyReturned && b.Other() == 60*mib,
		"%+v", b)
}

// A context that has gone is held against what was read while it was there.
func TestAccountingRefuteAContextThatWent(t *testing.T) {
	for context, refuted := range map[int64]int64{500: 0, 700: 700} {
		j := contextJob(context, "what=context")
		j.gives(200, 7<<30)
		j.loads(200, -context*mib, "what=context")
		j.loads(400, 50*mib, "what=context") // whose readings say nothing of the first
		j.loads(600, 0, "what=module")
		account := reconcileOne(t, j, readingsOf(t, "0 all=1 0 2000", "0 pid=71 50 560", "0 pid=71 150 560", "0 pid=71 450 50", "0 pid=71 500 900"))
		if account.Peak.ContextRefuted != refuted*mib || account.Peak.Context != (context-refuted)*mib || account.End.ContextRefuted != 0 || account.End.Context != 50*mib {
			t.Errorf("%d MiB: peak %+v, end %+v", context, account.Peak, account.End)
		}
	}
}

// Nor may those of several processes be more together than the device has in use.
func TestAccountingRefuteContextsTogether(t *testing.T) {
	for context, refuted := range map[int64]int64{1400: 0, 3721: 7442} {
		readings := readingsOf(t, "0 all=1 0 1000", "0 all=1 100 3000", "0 all=1 900 3000")
		first, second := contextJob(context, "what=context"), contextJob(context, "what=context")
		first.gives(950, 7<<30)
		second.gives(950, 7<<30)
		a, b := first.analyze(t, "rank0", readings), second.analyze(t, "rank1", readings)
		analysis.Reconcile([]analysis.Member{
			{Result: a, Device: &a.Devices[0], PID: 71}, {Result: b, Device: &b.Devices[0], PID: 72},
		}, readings, "")
		peak := a.Devices[0].Account.Peak
		if want := 3000*mib - 120*mib - (2*context-refuted)*mib; peak.ContextRefuted != refuted*mib || peak.Rest != want || peak.UnexplainedUnknown != accounting.WhyNotOurs {
			t.Errorf("%d MiB: refuted %d, rest %d, want %d and %d: %+v", context, peak.ContextRefuted/mib, peak.Rest, refuted, want/mib, peak)
		}
	}
}
