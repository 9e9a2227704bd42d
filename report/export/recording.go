package export

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace/dataset"
)

// Recording is a run to export. Some formats read its events several times.
type Recording struct {
	Run *dataset.Run
}

// analyze runs package analysis over the events of a process. It fails if they are inconsistent.
func (r *Recording) analyze(process *dataset.Process, opt analysis.Options) (*analysis.Result, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	opt.Process, opt.Text = process.Name, process.Strings().Text
	opt.FirstSeq = process.Parts[0].FirstSeq
	opt.Live = process.Live
	opt.Recovered = process.Ending.State != dataset.StateClosed
	result, err := analysis.Run(reader, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return result, nil
}

// CutAt makes all formats write a process up to an instant: AtPeak, AtOOM or the number of an event. ok is false if
// the process has no such instant. The peak is that of the device with most reserved.
func (r *Recording) CutAt(process *dataset.Process, at string) (ok bool, err error) {
	result, err := r.analyze(process, analysis.Options{})
	if err != nil {
		return false, err
	}
	seq, most := int64(-1), int64(-1)
	if at != AtPeak && at != AtOOM {
		if seq, err = strconv.ParseInt(at, 10, 64); err != nil {
			return false, err
		}
		if seq > result.LastSeq || seq < process.Parts[0].FirstSeq {
			return false, nil
		}
	}
	for i := range result.Devices {
		d := &result.Devices[i]
		switch {
		case at == AtPeak && d.MaxR > most:
			seq, most = d.Peak.Seq, d.MaxR
		case at == AtOOM && len(d.OOMs) > 0 && (seq < 0 || d.OOMs[0].Seq < seq):
			seq = d.OOMs[0].Seq
		}
	}
	if seq < 0 {
		return false, nil
	}
	process.CutAfter(seq)
	return true, nil
}

// buffered keeps the first error, so that formats need not check each write.
func buffered(w io.Writer) *bufio.Writer { return bufio.NewWriterSize(w, 64<<10) }
