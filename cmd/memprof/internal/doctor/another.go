package doctor

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/memprof/memprof/cmd/memprof/internal/process"
)

// Another looks for a Python package or module named memprof that is not this one, where the command's Python imports from:
// beside the script, in PYTHONPATH, among installed packages. A recorded process has imported ours before the script runs, so
// its own `import memprof` would not give what it gives otherwise.
func (c *Look) Another() (Finding, bool) {
	if c.Python == "" {
		return Finding{}, false
	}
	for _, dir := range c.importFolders() {
		for _, name := range []string{"memprof/__init__.py", "memprof.py"} {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			// A wheel of memprof has this module.
			if _, err := os.Stat(filepath.Join(dir, "memprof", "_hook.py")); err == nil && name != "memprof.py" {
				continue
			}
			return Finding{Check: "package", Health: Warn, Detail: path + " is another package named memprof",
				Remedy: "in a recorded job, `import memprof` gives memprof's marks and not this package: rename it, or record a job that does not import it"}, true
		}
	}
	return Finding{}, false
}

// importFolders are the folders that the command's Python imports from, in order, without those of the standard library.
func (c *Look) importFolders() []string {
	folders := []string{c.scripts}
	folders = append(folders, filepath.SplitList(os.Getenv("PYTHONPATH"))...)
	if python, err := process.FindCommand(c.Python); err == nil {
		// A virtual environment's Python is a link to another one, whose packages are not its own.
		prefix := filepath.Dir(filepath.Dir(python))
		for _, packages := range []string{"site-packages", "dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(prefix, "lib", "python3*", packages)) // the pattern is well-formed
			folders = append(folders, found...)
		}
	}
	return folders
}

// scriptsFolder is where a Python with these arguments imports from first: the folder of the script, or with -c and -m the
// current one.
func scriptsFolder(args []string) string {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "-W" || arg == "-X":
			i++
		case strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.ContainsAny(arg, "cm"):
			return "."
		case !strings.HasPrefix(arg, "-"):
			return filepath.Dir(arg)
		}
	}
	return "."
}
