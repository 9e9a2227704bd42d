package bfc

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// logged is a device that logs what an allocator asks of it.
type logged struct {
	*Device
	calls []string
}

func (m *logged) say(format string, values ...any) {
	m.calls = append(m.calls, fmt.Sprintf(format, values...))
}

func (m *logged) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	addr, granted, ok = m.Device.Grow(bytes)
	m.say("Grow(%d) grants [%d, %d)", bytes, addr-exampleBase, addr-exampleBase+granted)
	return addr, granted, ok
}

func (m *logged) Map(addr, bytes uint64) bool {
	m.say("Map(%d, %d)", addr-exampleBase, bytes)
	return m.Device.Map(addr, bytes)
}

func (m *logged) TryUnmap(addr, bytes uint64) bool {
	m.say("TryUnmap(%d, %d)", addr-exampleBase, bytes)
	return m.Device.TryUnmap(addr, bytes)
}

const exampleBase = 1 << 40

// TestDocExample runs the worked example of the package comment, whose lines it has to be.
func TestDocExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	assert.NoError(t, err)
	for _, preset := range Presets() {
		options := Policy{Preset: preset}.ForArena(Arena{Total: 1 << 30, Granularity: 2 * mib}).Options
		memory := &logged{Device: NewDevice(DeviceOptions{VMM: true, Granularity: 2 * mib, Base: exampleBase, Physical: 1 << 30})}
		a := mustNew(t, options, memory)
		blocks := map[string]Block{}
		for _, step := range []struct {
			name string
			size uint64
		}{{"a", 3 * mib}, {"b", 3 * mib / 2}, {"c", 700_000}, {"a", 0}, {"d", 9 * mib}, {"e", 2 * mib}} {
			memory.calls = nil
			line := "free  " + step.name
			if step.size > 0 {
				b := mustAlloc(t, a, step.size)
				blocks[step.name] = b
				line = fmt.Sprintf("alloc %s %9d  [%d, %d)", step.name, step.size, b.Addr-exampleBase, b.Addr-exampleBase+b.Size)
			} else {
				mustFree(t, a, blocks[step.name].Addr)
			}
			line = strings.TrimRight(fmt.Sprintf("%-40s  %9d  %s", line, a.Stats().Reserved, strings.Join(memory.calls, ", ")), " ")
			assert.That(t, strings.Contains(string(doc), "\n//\t"+line+"\n"), "preset %v: doc.go lacks\n//\t%s", preset, line)
		}
	}
}
