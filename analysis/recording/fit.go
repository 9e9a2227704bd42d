package recording

import (
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace/dataset"
)

// FitJobs are the processes of a recording that allocated, as package fit takes them.
func (r *Recording) FitJobs() []*fit.Job {
	var jobs []*fit.Job
	for i, result := range r.Results {
		process := r.Run.Processes[i]
		j := &fit.Job{
			Name: process.Name, Text: process.Strings().Text, Read: map[int32]fit.Reading{}, WholeCard: true, Simulated: simulated(&r.Run.Info),
			Open: func() (fit.Source, error) { return process.NewReader() },
		}
		allocs := int64(0)
		for k := range result.Devices {
			d := &result.Devices[k]
			allocs += d.Allocs
			if a := d.Account; a != nil {
				if !simulated(&r.Run.Info) {
					j.Card = d.Card
				}
				j.WholeCard = j.WholeCard && (a.Peak.Unknown|a.End.Unknown)&accounting.AllOverhead == 0
				if read, ok := driverMemory(d.Account); ok {
					j.Read[d.Device] = read
				}
			}
		}
		if version, ok := torchOf(process, &r.Run.Info); ok {
			j.Torch = &version
		}
		if allocs > 0 {
			jobs = append(jobs, j)
		}
	}
	return jobs
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
