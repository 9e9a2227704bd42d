package recording

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace/dataset"
)

// FitJobs are the processes of a recording that allocated, as package fit takes them.
func (r *Recording) FitJobs() []*fit.Job {
	var jobs []*fit.Job
	for i := range r.Results {
		if j := r.fitJob(i); j != nil {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// fitJob is a process by its index; nil if it did not allocate.
func (r *Recording) fitJob(i int) *fit.Job {
	result, process := r.Results[i], r.Run.Processes[i]
	j := &fit.Job{
		Name: process.Name, Text: process.Strings().Text, Read: map[int32]fit.Reading{}, Used: map[int32][]accounting.Used{}, WholeCard: true, Simulated: simulated(&r.Run.Info),
		DryRun: r.Run.Info.Source == dataset.DryRun,
		Open:   func() (fit.Source, error) { return process.NewReader() },
	}
	allocs := int64(0)
	for k := range result.Devices {
		d := &result.Devices[k]
		allocs += d.Allocs
		j.Reserved = max(j.Reserved, d.MaxR)
		if k == 0 {
			j.Recorded = r.recordedOf(result, d.Device)
		}
		if a := d.Account; a != nil {
			if !simulated(&r.Run.Info) {
				j.Card = d.Card
			}
			j.WholeCard = j.WholeCard && (a.Peak.Unknown|a.End.Unknown)&accounting.AllOverhead == 0
			if read, ok := driverMemory(d.Account); ok {
				j.Read[d.Device], j.Used[d.Device] = read, usedBy(a)
			}
		}
	}
	if imported := r.Run.Info.ImportOf(result.Process); imported != nil {
		j.Opening = imported.Opening
	}
	if version, ok := torchOf(process, &r.Run.Info); ok {
		j.Torch = &version
	}
	if allocs == 0 {
		return nil
	}
	return j
}

// recordedOf is the allocator that a device was recorded with.
func (r *Recording) recordedOf(result *analysis.Result, device int32) (a fit.Allocator) {
	if p, ok := PolicyOf(result, device); ok {
		tried := p.Preset.Policy()
		tried.Handle, tried.Trim = p.Handle, p.Trim
		return fit.Allocator{Allocator: "memprof", Policy: tried}
	}
	for i := range result.Arenas {
		if o := result.Arenas[i].Options; result.Arenas[i].Device == device && o["allocator"] != "" {
			a = fit.Allocator{Allocator: "torch", Setting: o["conf"]}
			if a.Setting == "" && o["coalesces"] == "1" {
				a.Setting = "expandable_segments:True"
			}
		}
	}
	if imported := r.Run.Info.ImportOf(result.Process); imported != nil && imported.Settings != nil && imported.Settings.Text != "" {
		a.Setting = imported.Settings.Text
	}
	if a.Setting == "" {
		a.Setting = "native"
	}
	return a
}

// driverMemory is what a process used beyond its arenas and other libraries: at its peak, or else at its end. ok is
// false where no reading says it, or one includes other processes of the run.
func driverMemory(a *accounting.Account) (read fit.Reading, ok bool) {
	if a.Missing != "" || len(a.Processes) != 1 {
		return read, false
	}
	for _, b := range []*accounting.Balance{&a.Peak, &a.End} {
		if b.UsedUnknown == "" && b.At.Seq >= 0 {
			return fit.Reading{Seq: b.At.Seq, Bytes: b.Read.Used - b.At.R - b.Other() - a.UsedBeforeJob}, true
		}
	}
	return read, false
}

// usedBy are the readings of a process.
func usedBy(a *accounting.Account) []accounting.Used {
	used := a.Course.Times()
	if a.Scope != accounting.ScopeProcess {
		for i := range used {
			used[i].Bytes -= a.UsedBeforeJob
		}
	}
	return used
}

// torchOf is the version of PyTorch that a process ran with. Imported snapshots do not say theirs: the rules of 2.7 to
// 2.12 are taken.
func torchOf(process *dataset.Process, info *dataset.Info) (v torchalloc.Version, ok bool) {
	for _, frameworks := range [][]string{info.Frameworks, process.FrameworkNames()} {
		if v, ok := torchalloc.VersionOf(frameworks); ok {
			return v, ok
		}
	}
	return torchalloc.Torch211, process.Frameworks == "torch"
}
