//go:build unix

package node

import (
	"math"
	"syscall"
)

// mostFiles is how many file descriptors the process may have open.
func mostFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil || uint64(l.Cur) > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(l.Cur)
}
