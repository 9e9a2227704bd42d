package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

var (
	largeBytes  = flag.Int64("large", 0, "import generated snapshots of this many bytes, and measure time and memory")
	largeFrames = flag.Int("large-frames", 0, "stack depth of the generated requests; 0: no frames")
)

// snapshotMaker writes a pickle of protocol 4 as Python's pickle.dump writes the dictionaries of
// torch 2.11: every container is memoized, keys are recalled, lists are appended in batches.
type snapshotMaker struct {
	to    *bufio.Writer
	wrote int64
	memo  uint32
	texts map[string]uint32
}

func (m *snapshotMaker) bytes(b ...byte) {
	m.to.Write(b)
	m.wrote += int64(len(b))
}

func (m *snapshotMaker) memoize() uint32 {
	m.bytes(0x94)
	m.memo++
	return m.memo - 1
}

func (m *snapshotMaker) recall(n uint32) {
	if n < 256 {
		m.bytes('h', byte(n))
		return
	}
	m.bytes('j', byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

func (m *snapshotMaker) text(s string) {
	if n, known := m.texts[s]; known {
		m.recall(n)
		return
	}
	m.bytes(0x8c, byte(len(s)))
	m.bytes([]byte(s)...)
	m.texts[s] = m.memoize()
}

func (m *snapshotMaker) number(n uint64) {
	switch {
	case n < 1<<8:
		m.bytes('K', byte(n))
	case n < 1<<16:
		m.bytes('M', byte(n), byte(n>>8))
	case n < 1<<31:
		m.bytes('J', byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	default:
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		width := 8
		for width > 0 && b[width-1] == 0 && b[width-2] < 0x80 {
			width--
		}
		m.bytes(0x8a, byte(width))
		m.bytes(b[:width]...)
	}
}

func (m *snapshotMaker) dict(body func()) uint32 {
	m.bytes('}')
	n := m.memoize()
	m.bytes('(')
	body()
	m.bytes('u')
	return n
}

// list writes a list of items until item says that there are no more.
func (m *snapshotMaker) list(item func(at int) bool) uint32 {
	m.bytes(']')
	n := m.memoize()
	m.bytes('(')
	for at := 0; item(at); at++ {
		if at%1000 == 999 {
			m.bytes('e', '(')
		}
	}
	m.bytes('e')
	return n
}

func (m *snapshotMaker) entry(action string, addr, size, time uint64, frames func()) {
	m.dict(func() {
		m.text("action")
		m.text(action)
		m.text("addr")
		m.number(addr)
		m.text("size")
		m.number(size)
		m.text("stream")
		m.number(0)
		m.text("time_us")
		m.number(time)
		m.text("compile_context")
		m.bytes(0x8c, 3, 'N', '/', 'A') // a new text for each entry
		m.memoize()
		m.text("user_metadata")
		m.text("")
		if frames != nil {
			m.text("frames")
			frames()
		}
	})
}

// jobOf writes a job of one device: up to 2,000 live blocks of many sizes in segments of 20 MiB, each of
// a stack of its own list of shared frames.
func (m *snapshotMaker) jobOf(bytes int64, depth int) {
	const first, segment, slots = uint64(0x7f0000000000), 20 << 20, 2000
	random := rand.New(rand.NewPCG(1, 2))
	pool := make([]uint32, 0, 5000)
	lists := map[uint64]uint32{}
	frames := func(addr uint64, fresh bool) func() {
		if depth == 0 {
			return nil
		}
		return func() {
			if !fresh {
				m.recall(lists[addr])
				return
			}
			base := random.IntN(400)
			lists[addr] = m.list(func(at int) bool {
				if at == depth {
					return false
				}
				want := (base/(1+at) + at*131) % cap(pool)
				for len(pool) <= want {
					n := len(pool)
					pool = append(pool, m.dict(func() {
						m.text("name")
						m.text("function" + strconv.Itoa(n))
						m.text("filename")
						m.text("/opt/job/module" + strconv.Itoa(n%50) + ".py")
						m.text("line")
						m.number(uint64(n % 2000))
					}))
					m.bytes('0')
				}
				m.recall(pool[want])
				return true
			})
		}
	}
	live := make([]uint64, slots) // size at slot*segment/2, 0 if free
	time := uint64(1_795_346_394_000_000)
	begun := 0
	var queue []func()
	m.bytes(0x80, 4)
	m.dict(func() {
		m.text("segments")
		m.list(func(int) bool { return false })
		m.text("device_traces")
		m.list(func(at int) bool {
			if at > 0 {
				return false
			}
			m.list(func(int) bool {
				time += uint64(random.IntN(40))
				if len(queue) > 0 {
					queue[0]()
					queue = queue[1:]
					return true
				}
				if m.wrote >= bytes {
					return false
				}
				if begun < slots {
					m.entry("segment_alloc", first+uint64(begun)*segment, segment, time, nil)
					begun++
					return true
				}
				slot := random.IntN(slots)
				addr := first + uint64(slot)*segment
				if size := live[slot]; size > 0 {
					m.entry("free_requested", addr, size, time, frames(addr, false))
					queue = append(queue, func() { m.entry("free_completed", addr, size, time, frames(addr, false)) })
					live[slot] = 0
					return true
				}
				live[slot] = 1<<20 + 1000*uint64(random.IntN(3000))
				m.entry("alloc", addr, live[slot], time, frames(addr, true))
				return true
			})
			return true
		})
		m.text("external_annotations")
		m.list(func(int) bool { return false })
	})
	m.bytes('.')
	m.to.Flush()
}

// A snapshot of 1 GB is imported in 10 s and 1 GiB of memory on two cores. With -large the test
// makes one, imports it and prints what that took; run it alone, with GOMAXPROCS=2.
func TestLarge(t *testing.T) {
	size := *largeBytes
	if size == 0 {
		t.Skip("-large is not given")
	}
	path := filepath.Join(t.TempDir(), "large.pickle")
	out, err := os.Create(path)
	assert.NoError(t, err)
	m := &snapshotMaker{to: bufio.NewWriterSize(out, 1<<20), texts: map[string]uint32{}}
	m.jobOf(size, *largeFrames)
	// Reading it shall not compete with writing it to the disk.
	assert.NoError(t, errors.Join(out.Sync(), out.Close()))
	*m = snapshotMaker{}
	user, system := processorTime(t)
	begun := time.Now()
	made, err := Import(t.TempDir(), []string{path}, "test")
	assert.NoError(t, err)
	took := time.Since(begun)
	userAfter, systemAfter := processorTime(t)
	status, _ := os.ReadFile("/proc/self/status")
	fmt.Printf("%d entries, odd %d: %.2f s, of processors %.2f s in user mode and %.2f s in the system; %s\n", made[0].Entries, made[0].Odd, took.Seconds(),
		(userAfter - user).Seconds(), (systemAfter - system).Seconds(), regexp.MustCompile(`VmHWM.*`).Find(status))
}

func processorTime(t *testing.T) (user, system time.Duration) {
	var used syscall.Rusage
	assert.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano()), time.Duration(used.Stime.Nano())
}
