//go:build !unix

package listen

import (
	"io/fs"
	"math"
)

// Neither the limit of file descriptors nor a file's owner is known on these systems.

func maxFiles() int { return math.MaxInt32 }

func owner(fs.FileInfo) string { return "" }
