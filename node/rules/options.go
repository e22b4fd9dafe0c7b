package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
)

// Options say how rule files are read. The zero value has the defaults. All nodes of a cluster need the same: what differs between two
// nodes is counted apart.
type Options struct {
	// Algorithm names that of rules which name none; empty: sliding_window. With fixed_window rules count as envoyproxy/ratelimit does.
	Algorithm string
	// IPv6Prefix is how many bits of an IPv6 address tell one client from another, where a descriptor does not say so itself; 0:
	// DefaultIPv6Prefix.
	IPv6Prefix int
	// MergeDomains lets several documents give descriptors of one domain: together they are as if they stood in one, in the order of the
	// files. Otherwise a domain that is given twice is refused.
	MergeDomains bool
}

// Validate reports everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if o.Algorithm != "" && !slices.Contains(algorithms, o.Algorithm) {
		errs = append(errs, fmt.Errorf("default algorithm %.80q: want one of %s", o.Algorithm, strings.Join(algorithms, ", ")))
	}
	if o.IPv6Prefix < 0 || o.IPv6Prefix > 128 {
		errs = append(errs, fmt.Errorf("IPv6 prefix: %d bits, want 1 to 128", o.IPv6Prefix))
	}
	return errors.Join(errs...)
}

// DefaultAlgorithm returns the algorithm of rules which name none. The options have to be valid.
func (o Options) DefaultAlgorithm() counters.Algorithm {
	a, _ := new(parser).named(nil, o.withDefaults().Algorithm)
	return a
}

func (o Options) withDefaults() Options {
	o.Algorithm = cmp.Or(o.Algorithm, counters.SlidingWindow.String())
	if o.IPv6Prefix == 0 {
		o.IPv6Prefix = DefaultIPv6Prefix
	}
	return o
}
