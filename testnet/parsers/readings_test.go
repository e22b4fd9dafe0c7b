package parsers

import (
	"bytes"
	"flag"
	"slices"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var (
	recordAnew = flag.Bool("record", false, "record what the installed servers read")
	seeds      = flag.Uint64("seeds", 0, "ask them about as many forms again for each of so many seeds")
)

// TestReadings holds the recording true of the servers that are installed.
func TestReadings(t *testing.T) {
	var recorded []Recorded
	if *recordAnew {
		for _, f := range Generate(1, forms) {
			recorded = append(recorded, Recorded{f, bytes.Repeat([]byte{'?'}, len(Servers))})
		}
	} else {
		var err error
		recorded, err = Recording()
		testkit.Must(t, err)
	}
	t.Run("servers", func(t *testing.T) {
		for i := range Servers {
			s := &Servers[i]
			if !s.Installed() {
				if t.Logf("%s is not installed: its recording stands", s.Name); *recordAnew {
					t.Errorf("%s is not installed", s.Name)
				}
				continue
			}
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				verify(t, s, i, recorded)
			})
		}
	})
	if *recordAnew && !t.Failed() {
		testkit.Must(t, record(recorded))
	}
}

// forms is how many the recording has.
const forms = 3600

// verify compares the column of a server, or fills it in.
func verify(t *testing.T, s *Server, column int, recorded []Recorded) {
	addr, wrong := s.Start(t), 0
	for _, r := range recorded {
		got, ok, err := read(addr, r.Variation().Direct())
		if err != nil {
			t.Fatalf("%s: %v", r.Form, err)
		}
		switch sign := r.signOf(got, ok); {
		case *recordAnew:
			r.Read[column] = sign
		case sign != r.Read[column]:
			if wrong++; wrong <= 10 {
				t.Errorf("%s: %c, recorded is %c: %+v", r.Form, sign, r.Read[column], got)
			}
		}
	}
	for seed := range *seeds {
		search(t, addr, column, seed+2)
	}
}

// search holds that none of the forms of a seed passes which the server reads as plain.
func search(t *testing.T, addr string, column int, seed uint64) {
	for _, f := range Generate(seed, forms) {
		got, ok, err := read(addr, f.Variation().Direct())
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		r := Recorded{f, bytes.Repeat([]byte{none}, len(Servers))}
		r.Read[column] = f.signOf(got, ok)
		for _, c := range countings(t) {
			c.check(t, r)
		}
	}
}

// TestGenerateRepeats: a seed makes the same forms each time, and none twice.
func TestGenerateRepeats(t *testing.T) {
	first := Generate(7, 500)
	if !slices.Equal(first, Generate(7, 500)) {
		t.Error("a seed makes different forms")
	}
	for _, f := range first {
		if again, err := parseForm(f.String()); err != nil || again != f {
			t.Errorf("%s reads as %s, %v", f, again, err)
		}
	}
}
