package rulefile

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

//go:embed sample.yaml
var sample []byte

// Sample returns the rules of the annotated sample file, the default of a node.
func Sample() *rules.Set { return parsedSample() }

var parsedSample = sync.OnceValue(func() *rules.Set {
	s, err := Parse("sample.yaml", sample)
	if err != nil {
		panic(err) // the sample is part of the program
	}
	return s
})

// Load reads rule files into one Set with the default Options. A path is a file, or a directory whose *.yaml, *.yml and
// *.json files are read in the order of their names, without subdirectories; with the Compatibility [Ratelimit] all its
// files are, subdirectories too. It returns a complete Set, or the joined problems of all files.
func Load(paths ...string) (*rules.Set, error) { return Options{}.Load(paths...) }

// Load reads rule files into one Set.
func (o Options) Load(paths ...string) (*rules.Set, error) { return o.parse(o.readAll(paths)) }

// content is what a file holds, or why it cannot be read.
type content struct {
	file string
	link string // target of a link out of its directory
	data []byte
	err  error

	skipped error // why it is not read, where that is no problem
}

// maxTotalSize is the maximum size of all files together, in bytes: all are in memory at once.
const maxTotalSize = 16 * maxFileSize

// elsewhere returns the target of a link that leads out of the file's directory, else "". The links of a ConfigMap stay
// in it.
func elsewhere(file string) string {
	real, _ := filepath.EvalSymlinks(file) // "" of a missing file
	dir, _ := filepath.EvalSymlinks(filepath.Dir(file))
	rel, err := filepath.Rel(dir, real)
	if real == "" || err == nil && filepath.IsLocal(rel) {
		return ""
	}
	return real
}

// parse makes one Set of all texts.
func (o Options) parse(texts []content) (*rules.Set, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(texts) == 0 {
		return nil, errors.New("load rules: no file or directory was given")
	}
	b := newBuilder(o)
	var errs []error
	for _, t := range texts {
		switch {
		case t.err != nil:
			errs = append(errs, fmt.Errorf("load rules: %w", t.err))
		case t.skipped != nil:
			why := "not read: " + reason(t.skipped)
			b.skipped = append(b.skipped, &Error{File: t.file, Line: 1, Column: 1, Reason: why})
		default:
			b.parse(t)
		}
	}
	if errs = append(b.finish(), errs...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return b.set, nil
}

// reason returns an error without the path that an operation of the file system puts before it.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// Options are how rule files are read. The zero value is the default. All nodes of a cluster need the same: they count
// apart where options differ.
type Options struct {
	// Algorithm is the algorithm of rules that name none; empty: sliding_window. With fixed_window rules count as in
	// envoyproxy/ratelimit.
	Algorithm string
	// IPv6Prefix is the number of leading bits of an IPv6 address that identify a client, for descriptors without
	// ipv6_prefix; 0: DefaultIPv6Prefix.
	IPv6Prefix int
	// MergeDomains lets several documents have one domain: their descriptors are joined in the order of the files.
	// Otherwise a repeated domain is refused.
	MergeDomains bool
	// Compatibility is how rules are read and count in domains that do not say: as envoyproxy/ratelimit does with
	// [Ratelimit]; empty: as this package documents.
	Compatibility string
	// IgnoreDotFiles leaves out what a directory has whose name begins with a dot, such as the versions of a mounted
	// ConfigMap.
	IgnoreDotFiles bool
	// Stores are those that strict rules need; nil: rules are not held against them.
	Stores *Stores
}

// Ratelimit is the Compatibility with envoyproxy/ratelimit.
const Ratelimit = "ratelimit"

// Validate reports all mistakes in the options.
func (o Options) Validate() error {
	var errs []error
	if o.Algorithm != "" && !slices.Contains(algorithms, o.Algorithm) {
		errs = append(errs,
			fmt.Errorf("default algorithm %.80q: want one of %s", o.Algorithm, strings.Join(algorithms, ", ")))
	}
	if o.IPv6Prefix < 0 || o.IPv6Prefix > 128 {
		errs = append(errs, fmt.Errorf("IPv6 prefix: %d bits, want 1 to 128", o.IPv6Prefix))
	}
	if o.Compatibility != "" && o.Compatibility != Ratelimit {
		errs = append(errs, fmt.Errorf("compatibility %.80q: want %s, or nothing", o.Compatibility, Ratelimit))
	}
	return errors.Join(errs...)
}

// DefaultAlgorithm returns the algorithm of rules that name none. The options have to be valid.
func (o Options) DefaultAlgorithm() counters.Algorithm {
	return (&parser{builder: newBuilder(o)}).named(nil)
}

func (o Options) withDefaults() Options {
	o.Algorithm = cmp.Or(o.Algorithm, counters.SlidingWindow.String())
	if o.IPv6Prefix == 0 {
		o.IPv6Prefix = DefaultIPv6Prefix
	}
	return o
}
