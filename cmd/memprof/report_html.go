package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/page"
)

// pagePoints is how finely a page tells the course of a device: so many stretches of time.
const pagePoints = 16384

// page writes the page of one or several recordings and names it.
func (o *reportOptions) page(stderr io.Writer, paths []string) error {
	runs, err := analyzeWith(paths, analysis.Options{Explore: true, MaxPoints: pagePoints, Top: 64})
	if err != nil {
		return err
	}
	p := page.Page{Used: map[*analysis.DeviceResult]analysis.Course{}, Path: strings.Join(paths, " "), Paths: map[*analysis.Result]string{}}
	for _, run := range runs {
		warn(stderr, run.Run)
		p.Results = append(p.Results, run.Results...)
		for _, result := range run.Results {
			p.Paths[result] = run.Path
		}
		if run.Readings == nil {
			continue
		}
		for _, result := range run.Results {
			for i := range result.Devices {
				d := &result.Devices[i]
				if card := recording.CardOf(result, d.Device, &run.Run.Info); card >= 0 && card < len(run.Readings.GPUs) {
					p.Used[d] = run.Readings.GPUs[card].All
				}
			}
		}
	}
	o.chooseCard(stderr, p.Results)
	if err := simulateKV(p.Results); err != nil {
		return err
	}
	file, named, err := o.pageFile(runs)
	if err != nil {
		return err
	}
	write := writeBeside
	if named {
		write = writeWhole
	}
	if err := write(file, private, func(w io.Writer) error { return report.HTML(w, p) }); err != nil {
		return fmt.Errorf("%w (-o names another place)", err)
	}
	screen.Complain(stderr, "wrote "+file)
	return nil
}

// pageFile is where the page goes: -o, a file if it ends like one, or else into the directory it
// names; otherwise beside the first recording. Named says that the user gave the file's whole name.
func (o *reportOptions) pageFile(runs []recording.Recording) (path string, named bool, err error) {
	if strings.HasSuffix(o.Output, ".html") || strings.HasSuffix(o.Output, ".htm") {
		return o.Output, true, nil
	}
	if o.Output == "" {
		return filepath.Join(runs[0].Run.Dir, "report.html"), false, nil
	}
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return "", false, exit.Usagef("-o %s cannot be created: %w", o.Output, err)
	}
	return filepath.Join(o.Output, "report.html"), false, nil
}
