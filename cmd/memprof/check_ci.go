package main

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// GitHub drops a summary above 1 MiB whole, and annotations beyond the tenth of a kind and
// step, without a word. What memprof leaves out, it counts.
const (
	mostMarkdown    = 1<<20 - 4096 // leaves room for the line that counts
	mostAnnotations = 10
)

// publish writes the results to where a CI shows them.
func (o *checkOptions) publish(stdout io.Writer, verdicts []verdict, skips []skip) error {
	if o.Markdown != "" {
		if err := replaceFile(o.Markdown, markdownVerdicts(verdicts, skips)); err != nil {
			return err
		}
	}
	if path := os.Getenv("GITHUB_STEP_SUMMARY"); path != "" {
		if err := appendFile(path, markdownVerdicts(verdicts, skips)); err != nil {
			return err
		}
	}
	if o.JUnit != "" {
		text, err := junitVerdicts(verdicts, skips)
		if err != nil {
			return err
		}
		if err := replaceFile(o.JUnit, text); err != nil {
			return err
		}
	}
	if o.CodeQuality != "" {
		text, err := qualityVerdicts(verdicts)
		if err != nil {
			return err
		}
		if err := replaceFile(o.CodeQuality, text); err != nil {
			return err
		}
	}
	if o.OpenMetrics != "" {
		if err := replaceFile(o.OpenMetrics, openMetrics(verdicts)); err != nil {
			return err
		}
	}
	if o.Annotations {
		_, err := stdout.Write(annotations(verdicts))
		return err
	}
	return nil
}

func appendFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, public)
	if err != nil {
		return exit.Input(err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// title names what is judged: the gate, and the rank where each is judged by itself.
func (v *verdict) title() string {
	text := v.written.text
	if v.rank != "" {
		text += " [" + v.rank + "]"
	}
	return plain.Text(text)
}

// sentence says what was found, on one line.
func (v *verdict) sentence() string {
	cells := v.cells("")
	text := fmt.Sprintf("expected %s, found %s, margin %s, in %s", cells[1], cells[2], cells[3], cells[5])
	if note := v.distrust(); note != "" {
		text += "; " + note
	}
	return text
}

// worstFirst orders verdicts for those who read only the top: violations, warnings, what is not
// trustworthy, the rest; among equals the one that is further beyond its limit.
func worstFirst(verdicts []verdict) []*verdict {
	class := func(v *verdict) int {
		switch {
		case v.violated():
			return 0
		case !v.holds:
			return 1
		case !v.trustworthy():
			return 2
		}
		return 3
	}
	beyond := func(v *verdict) float64 { // in limits, so that units compare; Inf of a limit of 0
		margin := v.gate.margin(v.found.value)
		if margin == 0 {
			return 0
		}
		return -margin / math.Abs(v.gate.limit)
	}
	var order []*verdict
	for i := range verdicts {
		order = append(order, &verdicts[i])
	}
	slices.SortStableFunc(order, func(v, w *verdict) int {
		return cmp.Or(cmp.Compare(class(v), class(w)), cmp.Compare(beyond(w), beyond(v)))
	})
	return order
}

// markdownVerdicts is a summary for a pull request, below GitHub's limit.
func markdownVerdicts(verdicts []verdict, skips []skip) []byte {
	var out bytes.Buffer
	headline := "all gates hold"
	if err := conclusion(verdicts); err != nil {
		headline = plain.Markdown(err.Error())
	}
	fmt.Fprintf(&out, "## memprof check: %s\n\n", headline)
	out.WriteString("| Verdict | Gate | Found | Margin | Spread | Where |\n| :--- | :--- | ---: | ---: | ---: | :--- |\n")
	order := worstFirst(verdicts)
	for i, v := range order {
		line := markdownRow(v)
		if out.Len()+len(line) > mostMarkdown {
			fmt.Fprintf(&out, "\n%s left out, none worse than the last above\n", units.Counted(int64(len(order)-i), "verdict"))
			break
		}
		out.WriteString(line)
	}
	for i := range skips {
		line := fmt.Sprintf("| skipped | %s | | | | %s |\n", plain.Markdown(skips[i].gate.text), plain.Markdown(skips[i].path+": "+skips[i].why))
		if out.Len()+len(line) <= mostMarkdown {
			out.WriteString(line)
		}
	}
	out.WriteByte('\n')
	return out.Bytes()
}

func markdownRow(v *verdict) string {
	word := v.word()
	if !v.holds {
		word = "**" + word + "**"
	}
	if !v.trustworthy() {
		word += ", not trustworthy"
	}
	cells := v.cells("")
	name := v.title()
	if v.gate.relative != nil {
		name += " = " + v.gate.format(v.gate.limit)
	}
	spread := ""
	if v.runs > 1 {
		spread = cells[4]
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", word, plain.Markdown(name), plain.Markdown(cells[2]), cells[3], spread, plain.Markdown(cells[5]))
}

// annotations are commands to the runner of GitHub Actions, the worst first.
func annotations(verdicts []verdict) []byte {
	var out bytes.Buffer
	left := mostAnnotations
	for _, v := range worstFirst(verdicts) {
		if left == 0 || v.holds && v.trustworthy() {
			break
		}
		left--
		level := "warning"
		if v.violated() {
			level = "error"
		}
		place := ""
		if v.written.file != "" {
			place = fmt.Sprintf("file=%s,line=%d,", annotationProperty.Replace(plain.Text(v.written.file)), v.written.line)
		}
		fmt.Fprintf(&out, "::%s %stitle=%s::%s\n", level, place, annotationProperty.Replace("memprof: "+v.title()), annotationText.Replace(v.sentence()))
	}
	return out.Bytes()
}

// The runner takes these back. Without them a name could end its property or the whole command
// and begin another.
var (
	annotationText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	annotationProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// What JUnit's readers agree on; there is no schema.
type junitSuites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`

	Suite junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Errors   int    `xml:"errors,attr"`
	Skipped  int    `xml:"skipped,attr"`

	Cases []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure"`
	Skipped *junitSkipped `xml:"skipped"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitSkipped struct {
	Message string `xml:"message,attr"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// junitVerdicts is a test case for each verdict. One that only warns passes: JUnit knows no
// warnings.
func junitVerdicts(verdicts []verdict, skips []skip) ([]byte, error) {
	suite := junitSuite{Name: "memprof check", Tests: len(verdicts) + len(skips), Skipped: len(skips)}
	for i := range verdicts {
		v := &verdicts[i]
		c := junitCase{Class: "memprof." + v.gate.metric.Name, Name: v.title(), Out: v.word() + ": " + v.sentence()}
		if v.violated() {
			suite.Failures++
			cells := v.cells("")
			c.Failure = &junitFailure{Type: "violated", Message: fmt.Sprintf("expected %s, found %s", cells[1], cells[2]), Text: v.sentence()}
			c.Out = ""
		}
		suite.Cases = append(suite.Cases, c)
	}
	for i := range skips {
		s := &skips[i]
		suite.Cases = append(suite.Cases, junitCase{
			Class: "memprof." + s.gate.metric.Name, Name: plain.Text(s.gate.text), Skipped: &junitSkipped{plain.Text(s.path + ": " + s.why)},
		})
	}
	text, err := xml.MarshalIndent(junitSuites{Name: suite.Name, Tests: suite.Tests, Failures: suite.Failures, Suite: suite}, "", "  ")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(xml.Header), text, []byte("\n")), nil
}
