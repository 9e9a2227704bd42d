package ci

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/memprof/memprof/analysis/gate"
)

// qualityIssue is an entry of GitLab's code-quality report, the part of Code Climate's format that GitLab
// reads. GitLab recognizes an issue by its fingerprint, which is the same in every run.
type qualityIssue struct {
	Description string          `json:"description"`
	CheckName   string          `json:"check_name"`
	Fingerprint string          `json:"fingerprint"`
	Severity    string          `json:"severity"` // info, minor, major, critical or blocker
	Location    qualityLocation `json:"location"`
}

type qualityLocation struct {
	Path  string `json:"path"` // from the root of the repository
	Lines struct {
		Begin int `json:"begin"`
	} `json:"lines"`
}

// CodeQuality returns the verdicts that do not hold or are not trustworthy, the worst first. Gates of the
// command line have no place; they get the first line of memprof.yaml.
func CodeQuality(results *gate.Results) any {
	issues := []qualityIssue{}
	seen := map[string]int{}
	for _, v := range worstFirst(results.Verdicts) {
		if v.Holds && v.Trustworthy() {
			continue
		}
		severity := "info"
		switch {
		case v.Violated():
			severity = "major"
		case !v.Holds:
			severity = "minor"
		}
		what := title(v) + "\x00" + v.Written.Severity
		seen[what]++ // the same gate may stand in a file twice
		issue := qualityIssue{
			Description: title(v) + ": " + sentence(v), CheckName: "memprof." + v.Gate.Metric.Name, Severity: severity,
			Fingerprint: fmt.Sprintf("%x", sha256.Sum256([]byte(what+strconv.Itoa(seen[what])))),
		}
		issue.Location.Path = repositoryPath(cmp.Or(v.Written.File, gate.FileName))
		issue.Location.Lines.Begin = max(1, v.Written.Line)
		issues = append(issues, issue)
	}
	return issues
}

// repositoryPath is a path from the root of its repository, or the path as it is if there is no repository.
func repositoryPath(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for dir := filepath.Dir(whole); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			inside, err := filepath.Rel(dir, whole)
			if err != nil {
				return path
			}
			return filepath.ToSlash(inside)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if here, err := os.Getwd(); err == nil {
		if inside, err := filepath.Rel(here, whole); err == nil && filepath.IsLocal(inside) {
			return filepath.ToSlash(inside)
		}
	}
	return path
}
