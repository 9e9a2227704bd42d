package recording

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/fit"
)

// SizesOf reads the size of each recording's job, its batch, from the commands: the one number in which they differ, or,
// of several, that behind a name which has the given one in it.
func SizesOf(runs []Recording, name string) ([]float64, error) {
	first := runs[0].Run.Info.Command
	var found [][]float64
	var named []bool
	for at := range first {
		var sizes []float64
		differs := false
		for _, r := range runs {
			command := r.Run.Info.Command
			if len(command) != len(first) {
				return nil, fmt.Errorf("the commands of %s and %s have not the same arguments", runs[0].Path, r.Path)
			}
			_, value, assigned := strings.Cut(command[at], "=")
			n, err := strconv.ParseFloat(value, 64)
			if !assigned {
				n, err = strconv.ParseFloat(command[at], 64)
			}
			differs = differs || command[at] != first[at]
			if err == nil && n > 0 {
				sizes = append(sizes, n)
			}
		}
		if differs && len(sizes) == len(runs) {
			found = append(found, sizes)
			before, _, assigned := strings.Cut(first[at], "=")
			if !assigned && at > 0 {
				before = first[at-1]
			}
			named = append(named, strings.Contains(strings.ToLower(before), strings.ToLower(name)))
		}
	}
	if at := slices.Index(named, true); at >= 0 {
		return found[at], nil
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("the commands of the recordings do not show their %s", name)
	}
	return found[0], nil
}

// Resized is a job at another size: its processes with the requests that they likely make, and with others that the
// recordings do not rule out.
type Resized struct {
	Likely []*fit.Job
	Others [][]*fit.Job
	Unsure fit.Unsure // of the process that has most
}

// Resize resizes each process of a job. The error is fit.ErrDiffer where the recordings have not the same processes, or these
// not the same requests.
func Resize(runs []Recording, sizes []float64, size float64) (*Resized, error) {
	var all [][]*fit.Job
	for i := range runs {
		all = append(all, runs[i].FitJobs())
		if len(all[i]) != len(all[0]) {
			return nil, fit.ErrDiffer
		}
	}
	r := &Resized{}
	var processes []*fit.Resized
	for process := range all[0] {
		var same []*fit.Job
		for i := range all {
			same = append(same, all[i][process])
		}
		p, err := fit.Resize(same, sizes, size)
		if err != nil {
			return nil, err
		}
		processes, r.Likely = append(processes, p), append(r.Likely, p.Likely)
		if p.Unsure.Requests > r.Unsure.Requests {
			r.Unsure = p.Unsure
		}
		for len(r.Others) < len(p.Others) {
			r.Others = append(r.Others, nil)
		}
	}
	for i := range r.Others {
		for _, p := range processes {
			r.Others[i] = append(r.Others[i], p.Others[min(i, len(p.Others)-1)])
		}
	}
	return r, nil
}

// Scale predicts the least card under each allocator at a size, on lines through those of the runs, which are their
// answers. The allocators are those of the first.
func Scale(runs []Recording, answers []*fit.Answer, sizes []float64, size float64) (rows []fit.Scaled, err error) {
	var growing []int64
	for i := range runs {
		d := worstDevice(&runs[i])
		growing = append(growing, categoryOf(d, "activations")+categoryOf(d, "inputs"))
	}
	if !slices.ContainsFunc(growing, func(bytes int64) bool { return bytes > 0 }) {
		growing = nil
	}
	for at := range answers[0].Rows {
		a := answers[0].Rows[at].Allocator
		var bytes []int64
		for i, answer := range answers {
			row := slices.IndexFunc(answer.Rows, func(r fit.Row) bool { return r.Allocator == a })
			if row < 0 {
				return nil, fmt.Errorf("%s has no row of %s %s", runs[i].Path, a.Allocator, cmp.Or(a.Setting, a.Policy))
			}
			bytes = append(bytes, answer.Rows[row].Bytes)
		}
		line, err := fit.Scale("", sizes, bytes, growing, size)
		if err != nil {
			return nil, err
		}
		rows = append(rows, line)
	}
	return rows, nil
}

// ScaleCategories predicts what is live at the peak, by category, at a size.
func ScaleCategories(runs []Recording, sizes []float64, size float64) (categories []fit.Scaled, err error) {
	var devices []*analysis.DeviceResult
	for i := range runs {
		devices = append(devices, worstDevice(&runs[i]))
	}
	for _, name := range categoriesOf(devices) {
		var bytes, proportional []int64
		for _, d := range devices {
			bytes = append(bytes, categoryOf(d, name))
			if name != "activations" && name != "inputs" {
				proportional = append(proportional, 0)
			}
		}
		if proportional == nil {
			proportional = bytes
		}
		line, err := fit.Scale(cmp.Or(name, "not known"), sizes, bytes, proportional, size)
		if err != nil {
			return nil, err
		}
		categories = append(categories, line)
	}
	return categories, nil
}

// worstDevice is the device with the greatest requested bytes at its peak.
func worstDevice(r *Recording) (worst *analysis.DeviceResult) {
	for _, result := range r.Results {
		for i := range result.Devices {
			if d := &result.Devices[i]; worst == nil || d.Peak.T > worst.Peak.T {
				worst = d
			}
		}
	}
	return worst
}

// categoriesOf are the names of the categories that some device has at its peak, in the order of the first that has them.
func categoriesOf(devices []*analysis.DeviceResult) (names []string) {
	for _, d := range devices {
		for i := range d.Held.Categories.Groups {
			if name := d.Held.Categories.Groups[i].Name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func categoryOf(d *analysis.DeviceResult, name string) int64 {
	for i := range d.Held.Categories.Groups {
		if g := &d.Held.Categories.Groups[i]; g.Name == name {
			return g.Requested
		}
	}
	return 0
}
