package httpapi

import (
	"hash/maphash"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

const (
	// saidFor is how long a request_id is remembered, at least.
	saidFor = time.Minute
	// maxSaid is how many decisions of layers are remembered of a minute: some 6 MiB. Where more come, the minute is cut short.
	maxSaid = 1 << 15
	// maxRequestID is the longest request_id, in bytes.
	maxRequestID = 128
)

// said is what checks and reports with a request_id were told, so that one that is sent again is told the same and charged once. It is safe for
// concurrent use.
type said struct {
	seed maphash.Seed

	mu          sync.Mutex
	now, before map[uint64]told // by the hash of the request_id; of this minute, and of the one before
	layers      int             // in now
	since       time.Time       // when now began
}

// told is an answer, and the hash of the question.
type told struct {
	question uint64
	layers   []counters.Decision
}

func newSaid() *said { return &said{seed: maphash.MakeSeed(), now: make(map[uint64]told)} }

// turn lets go of what is older than it has to be, at a time.
func (s *said) turn(at time.Time) {
	switch age := at.Sub(s.since); {
	case age < 0 || age >= 2*saidFor:
		s.before, s.now = nil, make(map[uint64]told)
	case age >= saidFor || s.layers > maxSaid:
		s.before, s.now = s.now, make(map[uint64]told)
	default:
		return
	}
	s.layers, s.since = 0, at
}

// find returns what was said of a request_id.
func (s *said) find(id uint64) (told, bool) {
	t, ok := s.now[id]
	if !ok {
		t, ok = s.before[id]
	}
	return t, ok
}

// note remembers what is said.
func (s *said) note(id uint64, t told) {
	s.now[id] = t
	s.layers += len(t.layers)
}

// hash is that of a request, in which each part is told from the next, or of a report of it.
func (s *said) hash(req *rules.Request, report bool) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	text := func(t string) {
		maphash.WriteComparable(&h, len(t))
		_, _ = h.WriteString(t)
	}
	text(req.Domain)
	text(req.Rule)
	text(req.Identity)
	maphash.WriteComparable(&h, req.Cost)
	maphash.WriteComparable(&h, req.Peek)
	maphash.WriteComparable(&h, report)
	for _, entries := range req.Descriptors {
		maphash.WriteComparable(&h, len(entries))
		for _, e := range entries {
			text(e.Key)
			text(e.Value)
		}
	}
	return h.Sum64()
}

// once asks about s.req, unless its request_id was decided already: then what was said is left in s.layers. Of those that come
// together one is asked about; the others wait for it.
func (d *door) once(r *http.Request, s *scratch) (counters.Verdict, error) {
	id, question := maphash.String(d.said.seed, s.requestID), d.said.hash(&s.req, s.report)
	d.said.mu.Lock()
	defer d.said.mu.Unlock()
	d.said.turn(d.opt.Now())
	if before, ok := d.said.find(id); ok {
		if before.question != question {
			return counters.Verdict{}, refuse(http.StatusConflict, "request_id %.40q was another check's, or another report's, within the last minutes: give each its own", s.requestID)
		}
		s.layers = append(s.layers[:0], before.layers...)
		return counters.VerdictOf(s.layers), nil
	}
	v, err := d.ask(r, s)
	if err == nil {
		d.said.note(id, told{question, slices.Clone(s.layers)})
	}
	return v, err
}
