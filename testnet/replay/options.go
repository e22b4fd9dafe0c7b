package replay

import (
	"errors"
	"fmt"
	"io"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

// Format is how the lines of a log are read.
type Format string

// What a Format may be.
const (
	Auto     Format = "auto"     // each line by its first character
	Combined Format = "combined" // common or combined format, with a virtual host in front or not
	JSON     Format = "json"     // an object a line
)

// What is read at a time, and what is held of it.
const (
	Window  = 1 << 14  // lines of a log within which they are sorted
	MaxLogs = 256      // which are open at the same time
	maxHeld = 64 << 20 // bytes of lines in all windows
)

// Options are what is tried, and how. The zero value lacks Rules; DefaultOptions has everything else.
type Options struct {
	// Rules are tried. Old, unless nil, is what they are compared with.
	Rules, Old *rules.Set
	// Domain is that of the rules; it may be empty where there is one only.
	Domain string
	// Descriptors are what is asked about each request, as lists of fields: "path,remote_address". KEY=VALUE in the place of a field is
	// an entry that is the same for all requests. Empty: what the rules can meet.
	Descriptors []string
	// Fields are places in JSON lines, as KEY=PATH: "api_key=request.headers.X-Api-Key". Of several for one key the first that a line has
	// counts. They take the place of those that Fields knows for the key; the key "time" is the request's.
	Fields []string
	Format Format
	// Worst is how many identities are listed of each rule.
	Worst int
	// MaxIdentities is how many identities of all rules of a set are told apart in the report. Beyond it, requests count for their rule only.
	MaxIdentities int
	// Memory is the budget in bytes of each table, as counters.Config has it.
	Memory int
}

// DefaultOptions are what the command has without flags.
func DefaultOptions() Options {
	return Options{Format: Auto, Worst: 10, MaxIdentities: 1 << 20, Memory: counters.DefaultMemory}
}

// Log is one access log. The reader is not closed.
type Log struct {
	Name string // for the report
	io.Reader
}

func (o *Options) validate(logs []Log) error {
	var errs []error
	if o.Rules == nil {
		errs = append(errs, errors.New("there are no rules"))
	}
	if len(logs) == 0 || len(logs) > MaxLogs {
		errs = append(errs, fmt.Errorf("%d logs, want 1 to %d: join some of them", len(logs), MaxLogs))
	}
	if o.Format != Auto && o.Format != Combined && o.Format != JSON {
		errs = append(errs, fmt.Errorf("unknown format %.40q, want %s, %s or %s", o.Format, Auto, Combined, JSON))
	}
	if o.Worst < 0 || o.MaxIdentities < 0 {
		errs = append(errs, fmt.Errorf("%d worst of %d identities, want at least 0", o.Worst, o.MaxIdentities))
	}
	return errors.Join(errs...)
}
