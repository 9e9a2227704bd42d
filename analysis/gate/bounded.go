package gate

import (
	"fmt"
	"io"
	"os"

	"github.com/memprof/memprof/analysis/plain"
)

// readBounded reads a regular file or a pipe of at most so many bytes. The error names the bound.
func readBounded(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := stat.Mode(); !mode.IsRegular() && mode&os.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("%s: want a regular file or a pipe, not %s", path, kindOfFile(mode))
	}
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: longer than %s, the limit for such a file", path, plain.FormatSize(most))
	}
	return text, nil
}

// kindOfFile describes a file that is neither regular nor a pipe.
func kindOfFile(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&os.ModeDevice != 0:
		return "a device"
	case mode&os.ModeSocket != 0:
		return "a socket"
	}
	return fmt.Sprint(mode.Type())
}
