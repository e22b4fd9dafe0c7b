package rulestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// SourceOptions configure a Source.
type SourceOptions struct {
	Rules    rulefile.Options // how rules are read
	Identity uint64           // fingerprint of the secret under which this node hashes identities
	Poll     time.Duration    // how often the store is asked for its versions, beside its messages
	Dir      string           // where the last good versions are kept; empty: nowhere
	Logger   *slog.Logger
}

// Status is what a Source knows. Versions are by Kind, 0 for none.
type Status struct {
	InForce    [kinds]uint64
	Stored     [kinds]uint64 // what the store held when it answered last
	Contact    time.Time     // when it answered last; zero: never
	FromCopy   bool          // what is in force was read from disk, and the store has not confirmed it
	Subscribed bool          // the store's messages arrive
	Overrides  int           // those in force
	Unused     int           // those that have no effect, see the log
	OtherKey   int           // of these, those that were made with another key file
	Problems   []string      // why what is in force may not be what should be
}

// Source follows a Store for a node. Run it once; Status is safe for concurrent use.
type Source struct {
	opt   SourceOptions
	store *Store
	log   *slog.Logger

	// of Run's goroutine
	accepted
	refused [kinds][]refusal // what was fetched and cannot be used, the last maxRefused
	why     [kinds]string    // why what the store holds is not in force
	copying [kinds]string    // what is wrong with the copies
	silent  error            // why the store does not answer; nil: it does
	logged  []string         // the problems that hold and were logged

	mu     sync.Mutex
	status Status
}

// accepted are the documents in force.
type accepted struct {
	have   [kinds]head
	files  []rulefile.File             // of the rules
	limits map[uint64][]rules.Override // by the fingerprints of their secrets
}

// refusal is a head whose text is not fetched again before a time; the zero time: ever.
type refusal struct {
	head
	why   string
	until time.Time
}

// maxRefused is how many refusals of a document are remembered.
const maxRefused = 16

// refuseHead remembers that a text cannot be used.
func (s *Source) refuseHead(k Kind, h head, why string, until time.Time) {
	others := slices.DeleteFunc(s.refused[k], func(r refusal) bool { return r.head == h })
	s.refused[k] = append(others[max(0, len(others)+1-maxRefused):], refusal{h, why, until})
}

// refusedNow returns why a text is not fetched now; empty: it is.
func (s *Source) refusedNow(k Kind, h head) string {
	for _, r := range s.refused[k] {
		if r.head == h && (r.until.IsZero() || time.Now().Before(r.until)) {
			return r.why
		}
	}
	return ""
}

// NewSource returns a source of rules in a store.
func NewSource(store *Store, opt SourceOptions) *Source {
	return &Source{opt: opt, store: store, log: opt.Logger.With("rules_redis", store.String())}
}

// Close closes the store of a source that never ran.
func (s *Source) Close() { _ = s.store.Close() }

// Status returns what the source knows.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Problems = slices.Clone(status.Problems)
	return status
}

const (
	firstTry = time.Second      // for which a starting node waits for the store before it uses its copies
	syncTime = 10 * time.Second // for which a node waits later

	syncPace   = 50 * time.Millisecond // between two looks at the store, however many messages arrive
	fetchAgain = time.Minute           // after a text that was not what its head says
)

// Run follows the store until ctx ends: it calls loaded with each set of rules, or with what is wrong with it, in its
// own goroutine. Then it closes the store.
func (s *Source) Run(ctx context.Context, loaded func(*rules.Set, error)) {
	wake := make(chan struct{}, 1)
	var listening sync.WaitGroup
	listening.Go(func() { s.listen(ctx, wake) })
	defer func() {
		listening.Wait()
		_ = s.store.Close() // nothing is under way
	}()
	s.begin(ctx, loaded)
	poll := time.NewTicker(s.opt.Poll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-wake:
		}
		s.sync(ctx, syncTime, loaded)
		s.report()
		select {
		case <-time.After(syncPace):
		case <-ctx.Done():
		}
	}
}

// begin puts in force what the store holds, or the copies on disk if these are later or the store does not answer.
func (s *Source) begin(ctx context.Context, loaded func(*rules.Set, error)) {
	var copies [kinds]Document
	for k := range kinds {
		d, err := readCopy(s.opt.Dir, k)
		if err != nil {
			s.copying[k] = err.Error()
		}
		copies[k] = d
	}
	s.sync(ctx, firstTry, loaded)
	before := s.accepted
	var set *rules.Set
	used := false
	for k, d := range copies {
		if d.Version.Version <= s.have[k].version {
			continue
		}
		parsed, err := s.accept(Kind(k), d)
		if err != nil {
			s.copying[k] = fmt.Sprintf("the copy of the %s in %s cannot be used: %v", Kind(k), s.opt.Dir, err)
			continue
		}
		if used = true; parsed != nil {
			set = parsed
		}
	}
	if !used || s.files == nil {
		s.report()
		return
	}
	if err := s.enforce(set, loaded); err != nil {
		s.accepted = before
		s.copying[Rules] = fmt.Sprintf("the copies in %s cannot be used: %v", s.opt.Dir, err)
	} else {
		s.log.Warn("rules are in force from the copy on disk", "rules_version", s.have[Rules].version,
			"limits_version", s.have[Limits].version, "dir", s.opt.Dir)
		s.setStatus(func(st *Status) { st.FromCopy = true })
	}
	s.report()
}

// sync asks the store what is in force there, and takes what is later than here.
func (s *Source) sync(ctx context.Context, within time.Duration, loaded func(*rules.Set, error)) {
	call, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	found, err := guarded(func() ([kinds]found, error) { return s.store.heads(call) })
	if ctx.Err() != nil {
		return
	}
	s.answered(err)
	if err != nil {
		return
	}
	before := s.accepted
	var set *rules.Set // parsed, if there are new rules
	var taken [kinds]Document
	changed := false
	for k := range kinds {
		d, err := guarded(func() (Document, error) { return s.newer(call, k, found[k]) })
		if err == nil && d.Version.Version > 0 {
			var parsed *rules.Set
			if parsed, err = s.accept(k, d); err != nil {
				err = s.refuse(k, d, err, loaded)
			} else if taken[k], changed = d, true; parsed != nil {
				set = parsed
			}
		}
		s.why[k] = reason(err)
	}
	if changed && s.files != nil {
		if err := s.enforce(set, loaded); err != nil {
			s.accepted = before
			s.takeBack(&taken, err)
		}
	}
	s.setStatus(func(st *Status) {
		confirmed := true
		for k := range kinds {
			st.Stored[k] = found[k].version
			confirmed = confirmed && found[k].head == s.have[k]
		}
		st.FromCopy = st.FromCopy && !confirmed
		st.Contact = time.Now()
	})
	for k, d := range taken {
		if d.Version.Version > 0 {
			s.keep(Kind(k), d)
		}
	}
}

// takeBack notes that documents could not be put in force: they are fetched again later.
func (s *Source) takeBack(taken *[kinds]Document, err error) {
	for k := range taken {
		if d := &taken[k]; d.Version.Version > 0 {
			s.why[k] = fmt.Sprintf("%s of the %s could not be put in force: %v", d.Version, Kind(k), err)
			s.refuseHead(Kind(k), d.head(), s.why[k], time.Now().Add(fetchAgain))
			*d = Document{}
		}
	}
}

// guarded turns a panic into an error: the client library panics on answers that no Redis gives.
func guarded[T any](call func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its answer is not one of a Redis: %.100v", p)
		}
	}()
	return call()
}

// reason returns an error's text; empty for none.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// answered notes whether the store answers, and logs the change.
func (s *Source) answered(err error) {
	switch {
	case err != nil && s.silent == nil:
		s.log.Warn("the store of the rules does not answer as it should: the rules in force stay", "error", err)
	case err == nil && s.silent != nil:
		s.log.Info("the store of the rules answers again")
	}
	s.silent = err
}

// newer returns the version of a head if it is later than the one in force, else the zero Document. The error says why
// what the store holds is not taken.
func (s *Source) newer(ctx context.Context, k Kind, f found) (Document, error) {
	h, have := f.head, s.have[k]
	stays := fmt.Sprintf("version %d stays in force; publish them with --above %[1]d", have.version)
	switch {
	case f.err != nil:
		return Document{}, f.err
	case h == have:
		return Document{}, nil
	case h.version > 0 && s.refusedNow(k, h) != "":
		return Document{}, errors.New(s.refusedNow(k, h))
	case h.version == 0:
		return Document{}, fmt.Errorf("the store holds no %s any more: %s", k, stays)
	case h.version < have.version:
		return Document{}, fmt.Errorf("the store holds an earlier version of the %s, %d: %s", k, h.version, stays)
	case h.version == have.version:
		return Document{}, fmt.Errorf("the store holds another text as the same version of the %s: %s", k, stays)
	}
	d, err := s.store.fetch(ctx, k, h)
	if errors.Is(err, ErrGarbage) { // somebody may repair it
		s.refuseHead(k, h, err.Error(), time.Now().Add(fetchAgain))
	}
	return d, err
}

// accept takes a document unless it cannot be used, and returns the rules of one of rules.
func (s *Source) accept(k Kind, d Document) (set *rules.Set, err error) {
	if k == Limits {
		_, limits, err := decodeLimits(d.Text)
		if err == nil {
			s.limits, s.have[k] = limits, d.head()
		}
		return nil, err
	}
	files, err := DecodeFiles(d.Text)
	if err == nil {
		set, err = s.opt.Rules.ParseFiles(files...)
	}
	if err == nil {
		s.files, s.have[k] = files, d.head()
	}
	return set, err
}

// refuse reports a document that cannot be used, once.
func (s *Source) refuse(k Kind, d Document, err error, loaded func(*rules.Set, error)) error {
	loaded(nil, err)
	first, _, _ := strings.Cut(err.Error(), "\n")
	err = fmt.Errorf("%s of the %s cannot be used: %s", d.Version, k, first)
	s.refuseHead(k, d.head(), err.Error(), time.Time{})
	return err
}

// enforce puts the documents that were accepted in force. set is the rules, nil if they are to be parsed again.
func (s *Source) enforce(set *rules.Set, loaded func(*rules.Set, error)) error {
	if set == nil {
		var err error
		if set, err = s.opt.Rules.ParseFiles(s.files...); err != nil { // it was possible before
			loaded(nil, err)
			return err
		}
	}
	mine := s.limits[s.opt.Identity]
	unused := set.Override(mine)
	for _, err := range unused[:min(len(unused), maxLogged)] {
		s.log.Warn("an override has no effect", "error", err)
	}
	others := 0
	for identity, list := range s.limits {
		if identity != s.opt.Identity {
			others += len(list)
		}
	}
	if others > 0 {
		s.log.Warn("overrides have no effect, as they were made with another key file than this node's",
			"overrides", others)
	}
	loaded(set, nil)
	s.setStatus(func(st *Status) {
		for k := range kinds {
			st.InForce[k] = s.have[k].version
		}
		st.Overrides, st.Unused, st.OtherKey = len(mine)-len(unused), len(unused)+others, others
	})
	return nil
}

// maxLogged is how many overrides without effect are logged one by one.
const maxLogged = 20

// keep writes the copy of a document that is in force, and logs its version.
func (s *Source) keep(k Kind, d Document) {
	s.log.Info("a version is in force", "of", k.String(), "version", d.Version.Version, "author", d.Author,
		"message", d.Message, "published", d.Time)
	if s.opt.Dir != "" {
		s.copying[k] = reason(writeCopy(s.opt.Dir, k, d))
	}
}

// report publishes the problems that hold, and logs those that are new.
func (s *Source) report() {
	var problems []string
	for k := range kinds {
		for _, p := range []string{s.why[k], s.copying[k]} {
			if p != "" {
				problems = append(problems, p)
			}
		}
	}
	for _, p := range problems {
		if !slices.Contains(s.logged, p) {
			s.log.Error("the rules of the store are not in force, or not safe", "because", p)
		}
	}
	s.logged = problems
	if s.silent != nil {
		problems = append(problems, "the store does not answer as it should: "+s.silent.Error())
	} else if s.have[Rules].version == 0 {
		problems = append(problems, "no rules have been published yet: edgelimit rules push")
	}
	s.setStatus(func(st *Status) { st.Problems = problems })
}

func (s *Source) setStatus(set func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set(&s.status)
}

const (
	pingAfter = 5 * time.Second // without a message; after twice that the connection is made anew
	dialAgain = time.Second     // after a connection was lost
)

// listen wakes the source when the store says that a version is in force, and whenever it begins to listen, until ctx
// ends. It is for speed: polling finds what it misses.
func (s *Source) listen(ctx context.Context, wake chan<- struct{}) {
	for ctx.Err() == nil {
		s.receive(ctx, wake)
		s.setStatus(func(st *Status) { st.Subscribed = false })
		select {
		case <-time.After(dialAgain):
		case <-ctx.Done():
		}
	}
}

// receive listens on one connection, until it fails.
func (s *Source) receive(ctx context.Context, wake chan<- struct{}) {
	sub := s.store.client.Subscribe(ctx, channel)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	for idle := false; ; {
		msg, err := guarded(func() (any, error) { return sub.ReceiveTimeout(ctx, pingAfter) })
		timeout, is := errors.AsType[net.Error](err)
		switch {
		case err == nil:
		case is && timeout.Timeout() && !idle && ctx.Err() == nil:
			if idle = true; sub.Ping(ctx) != nil {
				return
			}
			continue
		default:
			return
		}
		if idle = false; isPong(msg) {
			continue
		}
		s.setStatus(func(st *Status) { st.Subscribed = true })
		select {
		case wake <- struct{}{}:
		default: // it will look anyway
		}
	}
}

func isPong(msg any) bool {
	_, is := msg.(*redis.Pong)
	return is
}
