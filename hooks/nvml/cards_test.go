package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// cardsChild makes the test below print what the library says, in a process of its own:
// the dynamic linker reads the search path of libraries when a process starts.
const cardsChild = "MEMPROF_TEST_CARDS"

// An old library lacks functions, and calling one of those would end the process.
func TestCards(t *testing.T) {
	if os.Getenv(cardsChild) != "" {
		printCards()
		return
	}
	tests := []struct {
		name, flag, want string
	}{
		{"new", "-DNEW", "2 cards; 100 of 1000 used, by map[71:60 73:40]; 600 of 1000 used, by map[]"},
		{"old", "-DOLD", "2 cards; 150 of 1000 used, by map[71:60 73:40]; 650 of 1000 used, by map[]"},
		{"none", "", "libnvidia-ml.so.1 is not on this machine"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if test.flag != "" {
				library := filepath.Join(dir, "libnvidia-ml.so.1")
				out, err := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", test.flag, "testdata/nvml.c", "-o", library).CombinedOutput()
				assert.Must(t, err == nil, "%v\n%s", err, out)
			} else if found, _ := filepath.Glob("/usr/lib/*/libnvidia-ml.so.1"); len(found) > 0 {
				t.Skip("this machine has the library")
			}
			child := exec.Command(os.Args[0], "-test.run=^TestCards$")
			child.Env = append(os.Environ(), cardsChild+"=1", "LD_LIBRARY_PATH="+dir)
			out, err := child.CombinedOutput()
			got, _, _ := strings.Cut(string(out), "\n")
			assert.That(t, err == nil && got == test.want, "%v: %s\nwant %s", err, out, test.want)
		})
	}
}

func printCards() {
	cards, err := Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cards.Close()
	text := fmt.Sprintf("%d cards", cards.Count())
	for gpu := range cards.Count() {
		used, total, err := cards.Memory(gpu)
		if err != nil {
			text += "; " + err.Error()
			continue
		}
		text += fmt.Sprintf("; %d of %d used, by %v", used, total, cards.Processes(gpu))
	}
	fmt.Println(text)
}

func TestReadWithoutLibrary(t *testing.T) {
	if state, err := Read(); err == nil {
		t.Skipf("this machine has NVML: %+v", state)
	} else if err.Error() != "libnvidia-ml.so.1 is not on this machine" {
		t.Errorf("without the library: %v", err)
	}
}
