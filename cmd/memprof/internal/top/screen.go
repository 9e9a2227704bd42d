package top

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/summary"
)

// display prints updates: on a terminal on an alternate screen, elsewhere as lines.
type display struct {
	w       io.Writer
	json    bool
	once    bool
	drawing atomic.Bool // the terminal shows our screen
}

func (s *display) drawn() bool {
	return !s.json && !s.once && screen.Terminal(s.w) && os.Getenv("TERM") != "dumb"
}

func (s *display) show(look *View) error {
	switch {
	case s.json:
		text, err := plain.JSON(look)
		if err != nil {
			return err
		}
		_, err = s.w.Write(append(text, '\n'))
		return err
	case s.once:
		return nil // last prints it
	case !s.drawn():
		_, err := io.WriteString(s.w, plainLines(look))
		return err
	}
	columns, rows, err := term.GetSize(int(s.w.(*os.File).Fd()))
	if err != nil {
		columns, rows = 80, 24
	}
	var out bytes.Buffer
	if !s.drawing.Swap(true) {
		out.WriteString("\x1b[?1049h\x1b[?25l") // a screen of our own, without a cursor
	}
	out.WriteString("\x1b[H")
	for _, line := range table(look, columns, rows-1) {
		out.WriteString(line + "\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	_, err = s.w.Write(out.Bytes())
	return err
}

// leave restores the terminal's own screen.
func (s *display) leave() {
	if s.drawing.Swap(false) {
		io.WriteString(s.w, "\x1b[?25h\x1b[?1049l")
	}
}

// abandon restores the terminal, if it takes output within endsWithin.
func (s *display) abandon() {
	left := make(chan struct{})
	go func() {
		defer close(left)
		s.leave()
	}()
	select {
	case <-left:
	case <-time.After(endsWithin):
	}
}

// last prints the last update on the terminal's own screen.
func (s *display) last(look *View) error {
	if s.json || !s.once && !s.drawing.Load() {
		return nil
	}
	s.leave()
	_, err := io.WriteString(s.w, strings.Join(table(look, screen.Width(s.w), 0), "\n")+"\n")
	return err
}

// plainLines is an update as one line for each process, for output that is no terminal.
func plainLines(look *View) string {
	var out strings.Builder
	stamp := look.Time.Format(time.RFC3339)
	for i := range look.Processes {
		p := &look.Processes[i]
		fmt.Fprintf(&out, "%s %s", stamp, plain.Text(p.headline()))
		for j := range p.Devices {
			m := &p.Devices[j]
			fmt.Fprintf(&out, ", GPU %d requested %s provided %s reserved %s", m.Device, plain.FormatSize(m.Requested), orDash(m.Provided), plain.FormatSize(m.Reserved))
		}
		out.WriteString("\n")
	}
	if len(look.Processes) == 0 {
		fmt.Fprintf(&out, "%s no process has used a GPU yet\n", stamp)
	}
	for i := range look.Engines {
		for _, line := range look.Engines[i].lines() {
			fmt.Fprintf(&out, "%s %s\n", stamp, plain.Text(line))
		}
	}
	switch {
	case look.Ended:
		fmt.Fprintf(&out, "%s the recording has ended\n", stamp)
	case look.Abandoned:
		fmt.Fprintf(&out, "%s %s\n", stamp, look.abandonedNote())
	}
	return out.String()
}

// abandonedNote says that nobody records any more, and what to do.
func (l *View) abandonedNote() string {
	return "the recorder is gone, and so is the job: `memprof record --finish " + plain.ShellQuote(l.path) + "` finishes the recording"
}

// headline is the line above a process's table: events, rate, iteration and phase.
func (p *Process) headline() string {
	text := fmt.Sprintf("%s: %s", p.Process, plain.Counted(p.Events, "event"))
	if p.Rate != nil {
		text += fmt.Sprintf(", %s/s", plain.FormatCount(int64(max(0, *p.Rate))))
	}
	if p.Iteration != nil {
		text += fmt.Sprintf(", iteration %d", *p.Iteration)
	}
	if p.Phase != "other" {
		text += ", in " + p.Phase
	}
	if p.Ended {
		text += ", ended"
	}
	return text
}

func orDash(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return plain.FormatSize(*bytes)
}

// table is an update as lines of at most so many columns, and at most so many rows if rows is not 0.
func table(look *View, columns, rows int) []string {
	state := "recording"
	switch {
	case look.Ended:
		state = "ended"
	case look.Abandoned:
		state = "not recorded any more"
	}
	lines := []string{fmt.Sprintf("memprof top  %s  %s  %s", look.Time.Format(time.TimeOnly), state, shortCommand(look.Command, columns))}
	if look.Abandoned {
		lines = append(lines, look.abandonedNote())
	}
	for _, c := range look.Cards {
		if c.Used != nil && len(look.Processes) <= detailed {
			lines = append(lines, fmt.Sprintf("card %d %s: %s of %s used, all programs", c.Index, c.Name, plain.FormatSize(*c.Used), plain.FormatSize(c.Total)))
		}
	}
	for i := range look.Engines {
		lines = append(lines, look.Engines[i].lines()...)
	}
	if len(look.Processes) == 0 {
		lines = append(lines, "no process has used a GPU yet")
	}
	if len(look.Processes) > detailed {
		return cutTo(append(lines, compact(look)...), columns, rows)
	}
	for i := range look.Processes {
		p := &look.Processes[i]
		lines = append(lines, "", p.headline())
		if p.Problem != "" {
			lines = append(lines, "  problem: "+p.Problem)
		}
		lines = append(lines, fmt.Sprintf("  %-22s %9s %9s %9s %9s %11s", "", "requested", "provided", "reserved", "largest R", "allocations"))
		for j := range p.Devices {
			lines = append(lines, row(&p.Devices[j]))
			if note := p.Devices[j].note(); note != "" {
				lines = append(lines, "    "+note)
			}
			lines = append(lines, p.Devices[j].parts(columns)...)
		}
	}
	return cutTo(lines, columns, rows)
}

// detailed is up to how many processes have a table each; more have two lines each, so that eight fit a screen.
const detailed = 2

// cutTo leaves what a terminal has room for.
func cutTo(lines []string, columns, rows int) []string {
	if rows > 0 && len(lines) > rows {
		left := len(lines) - rows + 1
		lines = append(lines[:rows-1], fmt.Sprintf("… %d more lines than the terminal has", left))
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(screen.Cut(plain.Text(line), columns), " ")
	}
	return lines
}

// compact is two lines for each process and device.
func compact(look *View) []string {
	var used []string
	for _, c := range look.Cards {
		if c.Used != nil {
			used = append(used, fmt.Sprintf("%d %s", c.Index, plain.FormatSize(*c.Used)))
		}
	}
	var lines []string
	if len(used) > 0 {
		lines = append(lines, "cards used, all programs: "+strings.Join(used, ", "))
	}
	lines = append(lines, fmt.Sprintf("%-14s %9s %9s %9s  %-*s  %s", "", "requested", "reserved", "largest R", courseLength, "R since the start", "iteration, phase"))
	for i := range look.Processes {
		p := &look.Processes[i]
		for j := range p.Devices {
			m := &p.Devices[j]
			name := screen.Cut(p.Process, 14)
			if m.Device != 0 {
				name = screen.Cut(fmt.Sprintf("%s GPU %d", p.Process, m.Device), 14)
			}
			state := p.Phase
			if p.Iteration != nil {
				state = fmt.Sprintf("%d %s", *p.Iteration, p.Phase)
			}
			switch {
			case p.Problem != "":
				state = "problem: " + p.Problem
			case p.Ended:
				state = "ended"
			}
			if note := m.note(); note != "" {
				state += ", " + note
			}
			lines = append(lines, fmt.Sprintf("%-14s %9s %9s %9s  %-*s  %s", name, plain.FormatSize(m.Requested), plain.FormatSize(m.Reserved), plain.FormatSize(m.MaxReserved), courseLength, sparkline(m.Course), state))
			parts := shareTexts(m.Categories, 3)
			if modules := shareTexts(m.Modules, 2); modules != "" {
				parts += " | " + modules
			}
			if parts != "" {
				lines = append(lines, "  "+parts)
			}
		}
		if len(p.Devices) == 0 {
			lines = append(lines, p.headline())
		}
	}
	return lines
}

// parts are the lines below a device: R over time, and what is live, as the report's first screen has it.
func (m *Memory) parts(columns int) []string {
	var lines []string
	if len(m.Course) > 0 {
		lines = append(lines, "    R since the start  "+sparkline(m.Course))
	}
	if m.held != nil {
		var out bytes.Buffer
		_ = layout.WriteText(&out, layout.Options{Width: columns}, summary.Now(m.held, columns)) // a buffer takes all
		lines = append(append(lines, ""), strings.Split(strings.TrimRight(out.String(), "\n"), "\n")...)
	}
	return lines
}

func shareTexts(all []Share, most int) string {
	var texts []string
	for _, s := range all[:min(most, len(all))] {
		texts = append(texts, screen.Cut(s.Name, 30)+" "+plain.FormatSize(s.Requested))
	}
	return strings.Join(texts, ", ")
}

// sparkline draws numbers from 0 to the greatest of them, each as a character.
func sparkline(values []int64) string {
	if len(values) == 0 {
		return ""
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	most := max(slices.Max(values), 1)
	var out strings.Builder
	for _, v := range values {
		switch {
		case v <= 0:
			out.WriteRune(' ')
		default:
			out.WriteRune(bars[min(int(float64(v)/float64(most)*float64(len(bars))), len(bars)-1)])
		}
	}
	return out.String()
}

// mostOfCommand is how many characters of a command line are printed if the width is unknown.
const mostOfCommand = 200

// shortCommand is a command line cut to so many columns; 0 columns stand for an unknown width.
func shortCommand(command []string, columns int) string {
	text, most := strings.Join(command, " "), mostOfCommand
	if columns > 0 {
		most = min(most, columns)
	}
	if short := screen.Cut(text, most); short != text {
		return screen.Cut(text, most-1) + "…"
	}
	return text
}

func row(m *Memory) string {
	return fmt.Sprintf("  GPU %-18d %9s %9s %9s %9s %11s", m.Device, plain.FormatSize(m.Requested), orDash(m.Provided), plain.FormatSize(m.Reserved), plain.FormatSize(m.MaxReserved), plain.FormatCount(m.Live))
}

// note is the line below a device: paused memory and failed requests, if any.
func (m *Memory) note() string {
	var notes []string
	if m.Paused > 0 {
		notes = append(notes, plain.FormatSize(m.Paused)+" paused")
	}
	if m.OOMs != nil && *m.OOMs > 0 {
		notes = append(notes, plain.Counted(*m.OOMs, "request")+" failed")
	}
	return strings.Join(notes, ", ")
}
