package sim

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/testnet/traffic"
)

// Trace is arrivals that were recorded somewhere, of one client.
type Trace struct {
	Regions  int // that it names
	Nodes    int // that it names in one region, at most
	arrivals []traced
}

type traced struct {
	after        time.Duration // since the start
	region, node int32
}

// What a trace may be: it is held in memory, at 16 bytes a line.
const (
	maxTraceLines = 20_000_000
	maxTraceLine  = 512 // bytes
	maxTraceName  = 64  // bytes
)

// ReadTrace reads a CSV of arrivals, one a line: `seconds,region,node`. Seconds count from the start of the run and may
// have a fraction. Regions and nodes are names, each taken for the next region, and the next node of it, where it
// appears first. Lines need not be in order; empty lines, those that begin with #, and a header line at the beginning
// are skipped. An error names the line.
func ReadTrace(r io.Reader) (*Trace, error) {
	t := &tracer{regions: make(names)}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxTraceLine), maxTraceLine)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.TrimSpace(line) == "" || line[0] == '#' || number == 1 && isHeader(line) {
			continue
		}
		if err := t.add(line); err != nil {
			return nil, fmt.Errorf("trace, line %d: %w", number, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("trace: a line of more than %d bytes, after %d arrivals", maxTraceLine, len(t.arrivals))
	} else if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if len(t.arrivals) == 0 {
		return nil, errors.New("trace: no arrivals")
	}
	slices.SortStableFunc(t.arrivals, func(a, b traced) int { return cmp.Compare(a.after, b.after) })
	return &t.Trace, nil
}

// tracer is a trace that is being read.
type tracer struct {
	Trace
	regions names
	nodes   []names // of each region
}

// names numbers names in the order in which they appear first.
type names map[string]int32

func (n names) number(name string) int32 {
	at, ok := n[name]
	if !ok {
		at = int32(len(n))
		n[name] = at
	}
	return at
}

func (t *tracer) add(line string) error {
	fields := strings.Split(line, ",")
	if len(fields) != 3 {
		return fmt.Errorf("%d fields, want seconds,region,node", len(fields))
	}
	for i, field := range fields {
		fields[i] = strings.TrimSpace(field)
	}
	at, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || math.IsNaN(at) {
		return fmt.Errorf("%.40q is no number of seconds", fields[0])
	}
	if at < 0 || at >= maxDuration.Seconds() {
		return fmt.Errorf("%g seconds, want at least 0 and less than %g", at, maxDuration.Seconds())
	}
	for _, name := range fields[1:] {
		if name == "" || len(name) > maxTraceName || !utf8.ValidString(name) {
			return fmt.Errorf("%.40q is no name: want 1 to %d bytes", name, maxTraceName)
		}
	}
	if len(t.arrivals) == maxTraceLines {
		return fmt.Errorf("more than %d arrivals", maxTraceLines)
	}
	region := t.regions.number(fields[1])
	if t.Regions = len(t.regions); t.Regions > len(t.nodes) {
		t.nodes = append(t.nodes, make(names))
	}
	node := t.nodes[region].number(fields[2])
	if t.Nodes = max(t.Nodes, len(t.nodes[region])); t.Regions*t.Nodes > maxNodes {
		return fmt.Errorf("%d regions of %d nodes, at most %d nodes in all", t.Regions, t.Nodes, maxNodes)
	}
	t.arrivals = append(t.arrivals, traced{time.Duration(at * float64(time.Second)), region, node})
	return nil
}

func isHeader(line string) bool {
	return strings.ReplaceAll(strings.ToLower(line), " ", "") == "seconds,region,node"
}

// Duration is until the end of the millisecond of the last arrival.
func (t *Trace) Duration() time.Duration {
	last := t.arrivals[len(t.arrivals)-1].after
	return min(last.Truncate(time.Millisecond)+time.Millisecond, maxDuration)
}

// replay offers the trace as client 0.
func (t *Trace) replay(o *Options) traffic.Source {
	i := 0
	next := func() (traffic.Arrival, bool) {
		if i == len(t.arrivals) {
			return traffic.Arrival{}, false
		}
		a := t.arrivals[i]
		i++
		return traffic.Arrival{After: a.after, Client: "0", Node: int(a.region)*o.Nodes + int(a.node)}, true
	}
	return traffic.Source(next).Until(o.Duration)
}
