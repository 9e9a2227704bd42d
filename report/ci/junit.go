package ci

import (
	"encoding/xml"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/plain"
)

// junitSuites has the elements that readers of JUnit XML agree on; there is no schema.
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

// JUnit is a test case for each verdict. A gate that only warns passes, since JUnit has no warnings.
func JUnit(results *gate.Results) ([]byte, error) {
	suite := junitSuite{Name: "memprof check", Tests: len(results.Verdicts) + len(results.Skips), Skipped: len(results.Skips)}
	for i := range results.Verdicts {
		v := &results.Verdicts[i]
		c := junitCase{Class: "memprof." + v.Gate.Metric.Name, Name: title(v), Out: word(v) + ": " + sentence(v)}
		if v.Violated() {
			suite.Failures++
			cells := cells(v, "")
			c.Failure = &junitFailure{Type: "violated", Message: fmt.Sprintf("expected %s, found %s", cells[1], cells[2]), Text: sentence(v)}
			c.Out = ""
		}
		suite.Cases = append(suite.Cases, c)
	}
	for i := range results.Skips {
		s := &results.Skips[i]
		suite.Cases = append(suite.Cases, junitCase{
			Class: "memprof." + s.Gate.Metric.Name, Name: plain.Text(s.Gate.Text), Skipped: &junitSkipped{plain.Text(s.Path + ": " + s.Why)},
		})
	}
	text, err := xml.MarshalIndent(junitSuites{Name: suite.Name, Tests: suite.Tests, Failures: suite.Failures, Suite: suite}, "", "  ")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(xml.Header), text, []byte("\n")), nil
}
