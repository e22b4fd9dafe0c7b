//go:build unix

package listen

import (
	"fmt"
	"io/fs"
	"math"
	"syscall"
)

// maxFiles returns how many file descriptors the process may have open.
func maxFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || uint64(l.Cur) > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(l.Cur)
}

// owner returns ", of uid N" for a file, to append to its mode.
func owner(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf(", of uid %d", s.Uid)
	}
	return ""
}
