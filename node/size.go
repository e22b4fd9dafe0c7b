package node

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Size is a number of bytes. It is written as 64MiB or 1GiB, or as a plain number of them.
type Size int

// sizeUnits are what a size may be written in, the largest first.
var sizeUnits = []struct {
	name  string
	bytes Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseSize reads a size. The error quotes what it could not read.
func ParseSize(text string) (Size, error) {
	number, unit := text, Size(1)
	for _, u := range sizeUnits {
		if before, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = before, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || n > math.MaxInt64/uint64(unit) {
		return 0, fmt.Errorf("size %.80q: want a whole number with KiB, MiB or GiB, as in 64MiB or 1GiB, or of bytes", text)
	}
	return Size(n) * unit, nil
}

// String returns the size in the largest unit that leaves no fraction. ParseSize reads it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.bytes == 0 {
			return strconv.Itoa(int(s/u.bytes)) + u.name
		}
	}
	return strconv.Itoa(int(s))
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	size, err := ParseSize(n.Value) // of what is no scalar: empty
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*s = size
	return nil
}
