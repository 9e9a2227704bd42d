package export

import (
	"io"
	"strconv"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// JSONVersion is the version of [JSON]'s format. Keys may be added without raising it; existing keys keep their
// meaning.
const JSONVersion = 1

// JSON writes one object: the version, the run's run.json, and the events of each process in order, one
// a line. Numbers are integers; device and arena are -1 if an event has none.
//
//	{"version": 1, "run": {…}, "processes": [
//	{"process": "rank0", "pid": 4711, "rank": 0, "events": [
//	{"seq":0,"time_ns":256,"kind":"arena","device":0,"arena":0,"stream":0,"addr":…,"requested":…,"provided":…,"context":"…","thread":4711},
//	…
//	]}
//	]}
func JSON(w io.Writer, r *Recording) error {
	said := r.Run.Info
	said.Command, said.GPUs, said.Frameworks = list(said.Command), list(said.GPUs), list(said.Frameworks)
	info, err := plain.JSON(&said)
	if err != nil {
		return err
	}
	out := &writer{to: w}
	out.addString(`{"version": ` + strconv.Itoa(JSONVersion) + `, "run": ` + string(info) + `, "processes": [`)
	for i, process := range r.Run.Processes {
		if i > 0 {
			out.addString(",")
		}
		if err := jsonProcess(out, process); err != nil {
			return err
		}
	}
	out.addString("\n]}\n")
	return out.flush()
}

// list is an empty list in place of nil, which JSON would write as null.
func list[T any](of []T) []T {
	if of == nil {
		return []T{}
	}
	return of
}

func jsonProcess(out *writer, process *dataset.Process) error {
	head, err := plain.JSON(process.Name)
	if err != nil {
		return err
	}
	out.addString("\n{\"process\": " + string(head) + ", \"pid\": " + strconv.Itoa(process.PID) + ", \"rank\": " + strconv.Itoa(process.Rank) + ", \"events\": [")
	texts := map[int32][]byte{} // contexts as JSON
	separator := "\n"
	var line []byte
	err = process.Each(func(e *trace.Event) error {
		context, known := texts[e.Context]
		if !known {
			var err error
			if context, err = plain.JSON(process.Strings().Text(e.Context)); err != nil {
				return err
			}
			texts[e.Context] = context
		}
		line = append(line[:0], separator...)
		separator = ",\n"
		line = appendField(line, `{"seq":`, e.Seq)
		line = appendField(line, `,"time_ns":`, e.Time)
		line = append(append(append(line, `,"kind":"`...), e.Kind.String()...), '"')
		line = appendField(line, `,"device":`, int64(e.Device))
		line = appendField(line, `,"arena":`, int64(e.Arena))
		line = appendField(line, `,"stream":`, e.Stream)
		line = appendField(line, `,"addr":`, e.Addr)
		line = appendField(line, `,"requested":`, e.Requested)
		line = appendField(line, `,"provided":`, e.Provided)
		line = append(append(line, `,"context":`...), context...)
		line = appendField(line, `,"thread":`, int64(e.Thread))
		out.add(append(line, '}'))
		return out.err
	})
	out.addString("\n]}")
	return err
}

func appendField(line []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(line, name...), value, 10)
}
