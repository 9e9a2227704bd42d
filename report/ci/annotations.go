package ci

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/plain"
)

// mostAnnotations is how many annotations of a kind GitHub shows for a step. It drops others silently.
const mostAnnotations = 10

// Annotations are commands to the runner of GitHub Actions: at most 10, the worst first.
func Annotations(results *gate.Results) []byte {
	var out bytes.Buffer
	left := mostAnnotations
	for _, v := range worstFirst(results.Verdicts) {
		if left == 0 || v.Holds && v.Trustworthy() {
			break
		}
		left--
		level := "warning"
		if v.Violated() {
			level = "error"
		}
		place := ""
		if v.Written.File != "" {
			place = fmt.Sprintf("file=%s,line=%d,", annotationProperty.Replace(plain.Text(v.Written.File)), v.Written.Line)
		}
		fmt.Fprintf(&out, "::%s %stitle=%s::%s\n", level, place, annotationProperty.Replace("memprof: "+title(v)), annotationText.Replace(sentence(v)))
	}
	return out.Bytes()
}

// The runner takes these back. Without them a name could end its property or the whole command
// and begin another.
var (
	annotationText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	annotationProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
