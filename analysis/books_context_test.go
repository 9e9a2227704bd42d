package analysis

import "testing"

// contextJob is a process with a context, 60 MiB of a library and nothing else.
func contextJob(mibs int64, text string) *ledgerJob {
	j := newLedgerJob()
	j.loads(10, mibs*mib, text)
	j.takes(40, 7<<30, 60*mib, "call=cudaMalloc\tlibrary=libnccl.so.2")
	return j
}

// More than was ever read with it there is no context of this process, however it was measured.
func TestBooksRefuteAContext(t *testing.T) {
	const before, of, device = "0 all=1 0 2000", "0 pid=71 ", "what=context\thow=device"
	tests := []struct {
		name             string
		context          int64 // MiB, as measured
		text             string
		readings         []string
		refuted          bool
		unexplained      int64 // MiB
		unexplainedAtEnd int64
	}{
		{"others took 3 GiB", 3721, device, []string{of + "50 646", of + "900 646"}, true, 586, 586},
		{"measured before it was told how", 3721, "what=context", []string{of + "50 646", of + "900 646"}, true, 586, 586},
		{"all of what is used", 586, device, []string{of + "50 646", of + "900 646"}, false, 0, 0},
		{"a little more than is used", 660, device, []string{of + "50 646", of + "900 646"}, false, -74, -74},
		{"only the end was read with it", 3721, device, []string{of + "1 0", of + "900 646"}, true, 586, 586},
		{"more was used later", 700, device, []string{of + "50 646", of + "300 701", of + "900 646"}, false, -114, -114},
		{"read before it was there", 500, device, []string{of + "1 0", of + "12 100"}, false, -460, -460},
		{"a whole device of which others gave back", 500, device, []string{"0 all=1 50 1900", "0 all=1 900 1900"}, false, -660, -660},
		{"more than a whole device has", 3721, device, []string{"0 all=1 50 2646", "0 all=1 900 2646"}, true, 586, 586},
	}
	for _, test := range tests {
		readings := readingsOf(t, append([]string{before}, test.readings...)...)
		j := contextJob(test.context, test.text)
		r := j.analyze(t, "rank0", readings)
		CloseBooks([]Member{{Result: r, Device: &r.Devices[0], PID: 71, Alive: 950 * ms}}, readings, "")
		for name, at := range map[string]struct {
			book        Book
			unexplained int64
		}{"peak": {r.Devices[0].Books.Peak, test.unexplained}, "end": {r.Devices[0].Books.End, test.unexplainedAtEnd}} {
			context, refuted := test.context*mib, int64(0)
			if test.refuted {
				context, refuted = 0, context
			}
			b := at.book
			if b.Context != context || b.ContextRefuted != refuted || b.Unexplained != at.unexplained*mib {
				t.Errorf("%s, %s: context %d MiB, refuted %d, unexplained %d: %+v", test.name, name, b.Context/mib, b.ContextRefuted/mib, b.Unexplained/mib, b)
			}
			if b.Read.Used != b.Sum()+b.Unexplained {
				t.Errorf("%s, %s: the terms do not add up: %+v", test.name, name, b)
			}
		}
	}
}

// A context that has gone is held against what was read while it was there.
func TestBooksRefuteAContextThatWent(t *testing.T) {
	for context, refuted := range map[int64]int64{500: 0, 700: 700} {
		j := contextJob(context, "what=context")
		j.gives(200, 7<<30)
		j.loads(200, -context*mib, "what=context")
		j.loads(400, 50*mib, "what=context") // whose readings say nothing of the first
		j.loads(600, 0, "what=module")
		books := close1(t, j, readingsOf(t, "0 all=1 0 2000", "0 pid=71 50 560", "0 pid=71 150 560", "0 pid=71 450 50", "0 pid=71 500 900"))
		if books.Peak.ContextRefuted != refuted*mib || books.Peak.Context != (context-refuted)*mib || books.End.ContextRefuted != 0 || books.End.Context != 50*mib {
			t.Errorf("%d MiB: peak %+v, end %+v", context, books.Peak, books.End)
		}
	}
}

// Nor may those of several processes be more together than the device has in use.
func TestBooksRefuteContextsTogether(t *testing.T) {
	for context, refuted := range map[int64]int64{1500: 0, 3721: 7442} {
		readings := readingsOf(t, "0 all=1 0 1000", "0 all=1 100 3000", "0 all=1 900 3000")
		first, second := contextJob(context, "what=context\thow=device"), contextJob(context, "what=context")
		first.gives(950, 7<<30)
		second.gives(950, 7<<30)
		a, b := first.analyze(t, "rank0", readings), second.analyze(t, "rank1", readings)
		CloseBooks([]Member{
			{Result: a, Device: &a.Devices[0], PID: 71}, {Result: b, Device: &b.Devices[0], PID: 72},
		}, readings, "")
		peak := a.Devices[0].Books.Peak
		want := 2000*mib - 120*mib - (2*context-refuted)*mib
		if peak.ContextRefuted != refuted*mib || peak.Unexplained != want || !peak.ContextOfDevice {
			t.Errorf("%d MiB: refuted %d, unexplained %d, want %d and %d: %+v", context, peak.ContextRefuted/mib, peak.Unexplained/mib, refuted, want/mib, peak)
		}
	}
}
