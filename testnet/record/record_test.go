package record

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

const started = int64(1_000_000_000)

func header() Header {
	return Header{
		Version: Version, Started: started,
		Rule: Rule{
			Name: "edge/per_ip", Limit: 10, Window: 10 * time.Second, Sub: time.Second, Algorithm: "sliding_window",
		},
		Nodes: []Node{{"us-east-1", "us-east"}, {"eu-west-1", "eu-west"}},
	}
}

func decision() *Decision {
	return &Decision{
		Sent: started, Done: started + 5, Node: "us-east-1", Region: "us-east", Identity: "x", Cost: 1, Allowed: true,
		Remaining: 9, Limit: 10,
	}
}

func observation() *Observation {
	return &Observation{
		Sent:      started,
		Done:      started + 7,
		Node:      "eu-west-1",
		Boot:      "b",
		Bound:     0.25,
		Staleness: time.Millisecond,
		Members:   1,
		Breaker:   "closed",
		Counts:    map[string]uint64{"x": 3, "ü\n": 0},
	}
}

// entries is one of each kind.
func entries() []Entry {
	return []Entry{
		{Decision: decision()},
		{
			Decision: &Decision{
				Sent: started, Done: started, Node: "eu-west-1", Region: "eu-west", Identity: "y", Cost: 3,
				Error: "refused",
			},
		},
		{Event: &Event{At: started + 1, Began: true, Name: Partition, Target: "eu-west"}},
		{Observation: observation()},
	}
}

func collect(t *testing.T, r *Reader) []Entry {
	t.Helper()
	var out []Entry
	for e, err := range r.Entries() {
		testkit.Must(t, err)
		out = append(out, e)
	}
	return out
}

// What is written to a file is read from it, compressed or not.
func TestFileHoldsWhatWasWritten(t *testing.T) {
	for _, name := range []string{"run.jsonl", "run.jsonl.gz"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			w, err := Create(path, header())
			testkit.Must(t, err)
			want := entries()
			for _, e := range want {
				testkit.Must(t, w.Write(e))
			}
			testkit.Must(t, w.Close())
			r, err := Open(path)
			testkit.Must(t, err)
			if got := r.Header(); !reflect.DeepEqual(got, header()) {
				t.Errorf("header %+v", got)
			}
			if got := collect(t, r); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			raw, err := os.ReadFile(path)
			testkit.Must(t, err)
			if zipped := bytes.HasPrefix(raw, []byte("\x1f\x8b")); zipped != strings.HasSuffix(name, ".gz") {
				t.Errorf("compressed: %v", zipped)
			}
		})
	}
}

// The format is what other programs read: a change of it shows here.
func TestLinesOfTheFormat(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, header())
	testkit.Must(t, err)
	for _, e := range entries()[:3] {
		testkit.Must(t, w.Write(e))
	}
	testkit.Must(t, w.Close())
	const want = `{"header":{"version":1,"rule":{"name":"edge/per_ip","limit":10,"window_ns":10000000000,` +
		`"sub_ns":1000000000,"algorithm":"sliding_window"},"nodes":[{"id":"us-east-1","region":"us-east"},` +
		`{"id":"eu-west-1","region":"eu-west"}],"started":1000000000}}
{"decision":{"sent":1000000000,"done":1000000005,"node":"us-east-1","region":"us-east","identity":"x","cost":1,` +
		`"allowed":true,"remaining":9,"limit":10}}
{"decision":{"sent":1000000000,"done":1000000000,"node":"eu-west-1","region":"eu-west","identity":"y","cost":3,` +
		`"allowed":false,"error":"refused"}}
{"event":{"at":1000000001,"began":true,"name":"partition","target":"eu-west"}}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// Lines of concurrent writers do not mix, and none is lost.
func TestWriterIsSafeForConcurrentUse(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, header())
	testkit.Must(t, err)
	const writers, each = 8, 500 // more than fits into the buffer
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for n := range each {
				d := decision()
				d.Identity = fmt.Sprintf("%d/%d", i, n)
				if err := w.Write(Entry{Decision: d}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	testkit.Must(t, w.Close())
	r, err := NewReader(&out)
	testkit.Must(t, err)
	seen := make(map[string]bool)
	for _, e := range collect(t, r) {
		seen[e.Decision.Identity] = true
	}
	if len(seen) != writers*each {
		t.Errorf("%d of %d lines", len(seen), writers*each)
	}
}

// full is a disk that takes so many bytes.
type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	if len(b) > f.left {
		return 0, errors.New("no space left")
	}
	f.left -= len(b)
	return len(b), nil
}

// Close says how much is missing: the lines that were gathered when the disk was full, and all after.
func TestCloseReportsWhatIsLost(t *testing.T) {
	w, err := NewWriter(&full{flushAt * 3 / 2}, header())
	testkit.Must(t, err)
	refused, n := 0, 0
	for ; refused < 10; n++ {
		if w.Write(Entry{Decision: decision()}) != nil {
			refused++
		}
	}
	err = w.Close()
	if err == nil {
		t.Fatal("nothing is said of a full disk")
	}
	var lost int
	if _, scan := fmt.Sscanf(err.Error(), "%d lines are lost", &lost); scan != nil || lost <= 10 || lost >= n {
		t.Errorf("%v, want some more than the 10 that were refused, of %d", err, n)
	}
	if !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%v, want why", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
	if w.Write(Entry{Decision: decision()}) == nil {
		t.Error("written after it was closed")
	}
}

// A file that exists is not overwritten, and a header that is refused leaves none.
func TestCreateKeepsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	if _, err := Create(path, Header{}); err == nil {
		t.Error("an empty header was taken")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was left: %v", err)
	}
	testkit.Must(t, os.WriteFile(path, []byte("mine"), 0o600))
	if _, err := Create(path, header()); !errors.Is(err, os.ErrExist) {
		t.Errorf("%v, want that it exists", err)
	}
}

// A record that was truncated anywhere is no record.
func TestTruncation(t *testing.T) {
	for _, name := range []string{"run.jsonl", "run.jsonl.gz"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		w, err := Create(path, header())
		testkit.Must(t, err)
		for _, e := range entries() {
			testkit.Must(t, w.Write(e))
		}
		testkit.Must(t, w.Close())
		whole, err := os.ReadFile(path)
		testkit.Must(t, err)
		short := filepath.Join(dir, "short"+name)
		for n := 1; n < len(whole); n++ {
			if whole[n-1] == '\n' && name == "run.jsonl" {
				continue // a shorter record, which looks complete
			}
			testkit.Must(t, os.WriteFile(short, whole[:n], 0o600))
			if err := readFile(short); !errors.Is(err, ErrTruncated) {
				t.Fatalf("%s truncated after %d of %d bytes: %v", name, n, len(whole), err)
			}
		}
	}
}

// The line that is wrong is named, and nothing after it is read.
func TestErrorsNameTheLine(t *testing.T) {
	const head = `{"header":{"version":1,"rule":{"name":"r","limit":10,"window_ns":10000000000,"sub_ns":1000000000,` +
		`"algorithm":"sliding_window"},` +
		`"nodes":[{"id":"a","region":"east"}],"started":5}}` + "\n"
	const good = `{"event":{"at":6,"began":true,"name":"pause","target":"a"}}` + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "line 1: no header: the record is empty"},
		{"no header", good, "line 1: no header"},
		{"other version", strings.Replace(head, `"version":1`, `"version":2`, 1), "line 1: version 2"},
		{"two headers", head + good + head, "line 3: a second header"},
		{"no object", head + good + "nonsense\n" + good, "line 3: invalid character"},
		{"empty line", head + "\n", "line 2: unexpected end"},
		{"of no kind", head + "{}\n", "line 2: not just one of"},
		{"of two kinds", head + good[:len(good)-2] + `,"observation":{}}` + "\n", "line 2: not just one of"},
		{"too long", head + `{"event":{"name":"` + strings.Repeat("x", maxLine) + `"}}` + "\n", "line 2: longer than"},
		{"just too long", head + strings.Repeat(" ", maxLine) + "\n", "line 2: longer than"},
		{"wrong type", head + `{"decision":{"cost":-1}}` + "\n", "line 2: json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := readAll(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, ok := errors.AsType[*LineError](err); !ok {
				t.Errorf("%T is no *LineError", err)
			}
		})
	}
}

func readAll(in io.Reader) error { return drain(NewReader(in)) }

func readFile(name string) error {
	r, err := Open(name)
	if err != nil {
		return err
	}
	return errors.Join(drain(r, nil), r.Close())
}

// drain reads all entries.
func drain(r *Reader, err error) error {
	if err != nil {
		return err
	}
	for _, err := range r.Entries() {
		if err != nil {
			return err
		}
	}
	return nil
}

// Members that are not known are skipped: a later writer may add some.
func TestUnknownMembersAreSkipped(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, header())
	testkit.Must(t, err)
	testkit.Must(t, errors.Join(w.Write(Entry{Decision: decision()}), w.Close()))
	text := strings.ReplaceAll(out.String(), `"started"`, `"weather":[1],"started"`)
	text = strings.ReplaceAll(text, `"cost"`, `"colour":{"a":1},"cost"`)
	r, err := NewReader(strings.NewReader(text))
	testkit.Must(t, err)
	if got := collect(t, r); len(got) != 1 || !reflect.DeepEqual(got[0].Decision, decision()) {
		t.Errorf("%+v", got)
	}
}

// Everything that makes no sense is refused where it is written.
func TestWriteRefusesWhatMakesNoSense(t *testing.T) {
	changes := map[string]func(*Decision, *Observation, *Event){
		"sent before the start": func(d *Decision, o *Observation, e *Event) { d.Sent, o.Sent, e.At = 1, 1, 1 },
		"done before sent":      func(d *Decision, o *Observation, e *Event) { d.Done, o.Done, e.At = 1, 1, -1 },
		"far future": func(d *Decision, o *Observation, e *Event) {
			d.Done, o.Done, e.At = math.MaxInt64, math.MaxInt64, math.MaxInt64
		},
		"a node nobody knows": func(d *Decision, o *Observation, e *Event) { d.Node, o.Node, e.Name = "z", "z", "" },
		"a wait without an end": func(d *Decision, o *Observation, e *Event) {
			d.Done, o.Done, e.Name = started+1e15,
				started+1e15, ""
		},
		"region, boot and name": func(d *Decision, o *Observation, e *Event) {
			d.Region, o.Boot, e.Name = "eu-west",
				"", ""
		},
		"identity and bound": func(d *Decision, o *Observation, e *Event) {
			d.Identity, o.Bound, e.Name = "", -1,
				""
		},
		"cost of 0, no number": func(d *Decision, o *Observation, e *Event) {
			d.Cost, o.Bound, e.Name = 0,
				math.NaN(), ""
		},
		"cost beyond all": func(d *Decision, o *Observation, e *Event) {
			d.Cost, o.Bound, e.Name = 1<<60,
				math.Inf(1), ""
		},
		"other limit, staleness": func(d *Decision, o *Observation, e *Event) {
			d.Limit, o.Staleness, e.Name = 11, -1,
				""
		},
		"remaining, members": func(d *Decision, o *Observation, e *Event) {
			d.Remaining, o.Members, e.Name = 11,
				-1, ""
		},
		"not UTF-8": func(d *Decision, o *Observation, e *Event) {
			d.Identity, o.Counts, e.Name = "\xff", map[string]uint64{"\xff": 1}, ""
		},
		"answer and error": func(d *Decision, o *Observation, e *Event) { d.Error, o.Boot, e.Name = "x", "", "" },
	}
	w, err := NewWriter(io.Discard, header())
	testkit.Must(t, err)
	for name, change := range changes {
		d, o, e := decision(), observation(), &Event{At: started, Name: "x"}
		change(d, o, e)
		for _, entry := range []Entry{{Decision: d}, {Observation: o}, {Event: e}} {
			if w.Write(entry) == nil {
				t.Errorf("%s: taken: %+v %+v %+v", name, entry.Decision, entry.Observation, entry.Event)
			}
		}
	}
	long := decision()
	long.Identity = strings.Repeat("x", maxLine)
	if err := w.Write(Entry{Decision: long}); !errors.Is(err, ErrTooLong) {
		t.Errorf("a line that no reader takes: %v", err)
	}
	if err := w.Write(Entry{Decision: decision()}); err != nil {
		t.Errorf("after all these a good one is refused: %v", err)
	}
}

// All that is wrong with a header is said at once.
func TestHeaderReportsAllProblems(t *testing.T) {
	h := header()
	h.Rule.Algorithm, h.Started = "token_bucket", -1
	h.Nodes = append(h.Nodes, Node{"us-east-1", "x"}, Node{"", "x"}, Node{"z", ""})
	err := h.Validate()
	for _, want := range []string{"token_bucket", "started at -1", `node "us-east-1"`, `node ""`, `node "z"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for algorithm, want := range map[string]string{"fixed_window": "cannot be judged",
		"sliding": `unknown algorithm "sliding"`, "": `unknown algorithm ""`} {
		h := header()
		if h.Rule.Algorithm = algorithm; h.Validate() == nil || !strings.Contains(h.Validate().Error(), want) {
			t.Errorf("%q: %v, want %s", algorithm, h.Validate(), want)
		}
	}
	for _, change := range []func(*Header){
		func(h *Header) { h.Nodes = nil }, func(h *Header) { h.Rule.Limit = 0 }, func(h *Header) { h.Rule.Window = 0 },
		func(h *Header) { h.Rule.Sub = 3 * time.Second },
	} {
		h := header()
		if change(&h); h.Validate() == nil {
			t.Errorf("taken: %+v", h)
		}
	}
}

func TestRuleIsTheLimit(t *testing.T) {
	l, err := header().Rule.AsLimit()
	testkit.Must(t, err)
	if got := NewRule(l); got != header().Rule {
		t.Errorf("%+v, want %+v", got, header().Rule)
	}
}

// FuzzReader: whatever the text, there is an error or a record, and a record that is written again is the same.
func FuzzReader(f *testing.F) {
	var out bytes.Buffer
	w, err := NewWriter(&out, header())
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries() {
		if err := w.Write(e); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	for _, part := range slices.Collect(bytes.Lines(out.Bytes())) {
		f.Add(part)
	}
	f.Add(out.Bytes()[:out.Len()-1])
	f.Fuzz(func(t *testing.T, text []byte) {
		h, first, err := readBack(text)
		if err != nil {
			if _, ok := errors.AsType[*LineError](err); !ok {
				t.Fatalf("%v names no line", err)
			}
			return
		}
		if text[len(text)-1] != '\n' {
			t.Fatal("the last line has no end, and nothing is said")
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, h)
		testkit.Must(t, err)
		for _, e := range first {
			if err := w.Write(e); errors.Is(err, ErrTooLong) {
				return // escapes made it longer
			} else if err != nil {
				t.Fatal(err)
			}
		}
		testkit.Must(t, w.Close())
		h2, second, err := readBack(again.Bytes())
		if err != nil || !reflect.DeepEqual(h, h2) || len(first) != len(second) {
			t.Fatalf("written again: %v", err)
		}
		for i := range first {
			if first[i].Decision != nil && *first[i].Decision != *second[i].Decision ||
				first[i].Event != nil && *first[i].Event != *second[i].Event {
				t.Fatalf("entry %d: %+v became %+v", i, first[i], second[i])
			}
		}
	})
}

func readBack(text []byte) (Header, []Entry, error) {
	r, err := NewReader(bytes.NewReader(text))
	if err != nil {
		return Header{}, nil, err
	}
	var all []Entry
	for e, err := range r.Entries() {
		if err != nil {
			return Header{}, nil, err
		}
		all = append(all, e)
	}
	return r.Header(), all, nil
}

// A compressed file that is no gzip, or holds no record, is refused by name.
func TestOpenNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	if _, err := zw.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, zw.Close())
	for name, content := range map[string][]byte{"plain.gz": []byte("hello, this is no gzip\n"),
		"other.gz": z.Bytes(), "other": []byte("hello\n")} {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, content, 0o600))
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
