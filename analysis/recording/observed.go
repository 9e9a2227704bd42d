package recording

import (
	"errors"
	"io"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace/dataset"
)

// model analyzes a process again whose allocator memprof only observed, with the sizes of blocks that the model of
// PyTorch's own allocator gives them, as all passes from then on have them. Where the model does not follow the recording
// to its end, the result stays as it is and says why.
func (in *input) model(info *dataset.Info, opt analysis.Options, result *analysis.Result) (*analysis.Result, error) {
	process := in.process
	version, ok := torchOf(process, info)
	if !ok { // it does not say: as verify does
		version = torchalloc.Torch211
	}
	if process.Parts[0].Number != 0 || process.Parts[0].FirstSeq != 0 {
		return result, nil
	}
	follower := func() *torchalloc.Follower { return torchalloc.NewFollower(version, process.Strings().Text) }
	of := follower()
	if err := drain(process, of); err != nil {
		for i := range result.Devices {
			if d := &result.Devices[i]; d.Native != nil {
				d.Native.NotFollowed = err.Error()
			}
		}
		return result, nil
	}
	in.follower = follower
	modeled, err := in.run(opt)
	if err != nil {
		return nil, err
	}
	for i := range modeled.Devices {
		if i < len(result.Devices) && result.Devices[i].Native != nil {
			modeled.Devices[i].Native = result.Devices[i].Native
			modeled.Devices[i].Native.Followed = &of.Followed
		}
	}
	return modeled, nil
}

// drain has all events of a process followed.
func drain(process *dataset.Process, f *torchalloc.Follower) error {
	reader, err := process.NewReader()
	if err != nil {
		return err
	}
	defer reader.Close()
	last := int64(0)
	for {
		batch, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return f.End(last)
		}
		if err != nil {
			return err
		}
		for i := range batch.Len() {
			e := batch.Event(i)
			last = e.Seq
			if _, err := f.Add(&e); err != nil {
				return err
			}
		}
	}
}
