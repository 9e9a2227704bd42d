package recording

import (
	"context"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace/dataset"
)

// model analyzes a process again if memprof only observed its allocator, with the sizes of blocks that the model of
// PyTorch's own allocator gives them, as all passes from then on have them. Where the model does not follow the recording
// to its end, the result stays as it is and says why.
func (in *input) model(info *dataset.Info, opt analysis.Options, result *analysis.Result) (*analysis.Result, error) {
	var observed []*torchalloc.Observed
	for i := range result.Devices {
		if of := result.Devices[i].Native; of != nil {
			observed = append(observed, of)
		}
	}
	process := in.process
	version, ok := torchOf(process, info)
	if !ok { // it does not say: as verify does
		version = torchalloc.Torch211
	}
	if observed == nil || process.Parts[0].Number != 0 || process.Parts[0].FirstSeq != 0 {
		return result, nil
	}
	follower := func() *torchalloc.Follower { return torchalloc.NewFollower(version, process.Strings().Text) }
	model := follower()
	if err := model.All(context.Background(), process.Each); err != nil {
		for _, of := range observed {
			of.NotFollowed = err.Error()
		}
		return result, nil
	}
	in.follower = follower
	modeled, err := in.run(opt)
	if err != nil {
		return nil, err
	}
	for _, of := range observed {
		of.Followed = &model.Followed
	}
	for i := range result.Devices {
		modeled.Devices[i].Native = result.Devices[i].Native
	}
	return modeled, nil
}
