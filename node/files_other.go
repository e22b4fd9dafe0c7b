//go:build !unix

package node

import "math"

// mostFiles is how many file descriptors the process may have open: that is not known here.
func mostFiles() int { return math.MaxInt32 }
