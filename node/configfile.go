package node

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SampleConfig is a configuration file with every setting at its default, and what each means.
//
//go:embed edgelimit.yaml
var SampleConfig []byte

// ReadConfig reads a configuration file over the defaults. What it does not understand it reports all at once, as
// [rulefile.Problems] takes apart: each a *rulefile.Error, with its place in the file.
func ReadConfig(name string) (Config, error) { return DefaultConfig().Read(name) }

// Read reads a configuration file over c, as ReadConfig does over the defaults.
func (c Config) Read(name string) (Config, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	cfg := c
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, configErrors(name, b, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: there is more than one document", name)
	}
	return cfg, nil
}

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
		return 0, fmt.Errorf("size %.80q: want a whole number with KiB, MiB or GiB, as in 64MiB or 1GiB, or of bytes",
			text)
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
