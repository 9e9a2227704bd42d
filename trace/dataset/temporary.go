package dataset

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

const partSuffix = ".parquet"

// tempSuffix ends the names of incomplete parts of a run. It contains the run's ID, so that no other run removes
// them.
func tempSuffix(runID string) string { return "." + runID + partSuffix + ".tmp" }

// BallastName is the name of the disk space that a collector reserves.
func BallastName(runID string) string { return ".ballast." + runID }

// temporaryOf says whether a name is that of a temporary file of the run. Such names contain the run's
// ID, so that no other file has them.
func temporaryOf(runID, name string) bool {
	return runID != "" && (strings.HasSuffix(name, tempSuffix(runID)) || name == BallastName(runID) || name == infoTemp(runID))
}

// RemoveTemporary removes the temporary files that a killed collector of the run left in dir.
func RemoveTemporary(dir, runID string) error {
	return removeTemporary(dir, func(name string) bool { return temporaryOf(runID, name) })
}

func removeTemporary(dir string, is func(name string) bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		if is(e.Name()) {
			err = errors.Join(err, root.Remove(e.Name()))
		}
	}
	return err
}
