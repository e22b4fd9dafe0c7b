package rulestore

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// follower runs a source, and keeps what it brings.
type follower struct {
	*Source
	log  testkit.Log
	stop func()

	mu      sync.Mutex
	set     *rules.Set
	loads   int
	refused []error
}

const fingerprint = 42

// follow follows a store until the test ends, or stop is called.
func follow(t *testing.T, url, dir string, poll time.Duration) *follower {
	t.Helper()
	cfg, err := regions.ParseRedisURL(url)
	testkit.Must(t, err)
	s, err := Open(cfg)
	testkit.Must(t, err)
	f := &follower{}
	f.Source = NewSource(s, SourceOptions{Identity: fingerprint, Poll: poll, Dir: dir, Logger: f.log.Logger()})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, f.loaded)
	}()
	f.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(f.stop)
	return f
}

func (f *follower) loaded(set *rules.Set, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loads++; err != nil {
		f.refused = append(f.refused, err)
		return
	}
	f.set = set
}

// limit returns the limit of a key, 0 without rules.
func (f *follower) limit(key counters.Key) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.set == nil {
		return 0
	}
	m := rules.Match{Rule: f.set.Rule("test/client"), Key: key}
	return m.Charge(&rules.Request{}, time.Now().UnixNano()).Limit.Max()
}

func (f *follower) count() (loads, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads, len(f.refused)
}

func (f *follower) awaits(t *testing.T, most uint64) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("a limit of %d is in force", most), func() bool { return f.limit(0) == most })
}

func (f *follower) hasProblem(text string) func() bool {
	return func() bool {
		return slices.ContainsFunc(f.Status().Problems, func(p string) bool { return strings.Contains(p, text) })
	}
}

const (
	quick = 20 * time.Millisecond
	never = time.Hour // only messages bring news
)

// followed has a store followed by messages alone, and then by polling alone.
func followed(t *testing.T, s *Store, writers ...*Store) {
	t.Helper()
	w := s
	if len(writers) > 0 {
		w = writers[0]
	}
	for _, poll := range []time.Duration{never, quick} {
		f := &follower{}
		cfg := SourceOptions{Identity: fingerprint, Poll: poll, Logger: f.log.Logger()}
		f.Source = NewSource(&Store{s.client, s.addr}, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		wake := make(chan struct{}, 1)
		if poll == never {
			running.Go(func() { f.listen(ctx, wake) })
			testkit.Eventually(t, "messages are subscribed to", func() bool { return f.Status().Subscribed })
			<-wake
		}
		v := current(t, w).Version.Version + 1
		publish(t, w, Rules, rulesOf(t, v, int(1000+v)))
		if poll == never {
			<-wake
		}
		testkit.Eventually(t, "the version is in force", func() bool {
			f.sync(t.Context(), testkit.Patience, f.loaded)
			return f.limit(0) == 1000+v
		})
		cancel()
		running.Wait()
	}
}

// limitsOf is a version of overrides, by key.
func limitsOf(t *testing.T, version uint64, identity uint64, all map[counters.Key]uint64) Document {
	t.Helper()
	var limits []Limit
	for key, most := range all {
		limits = append(limits, Limit{Rule: "test/client", Key: Hex(uint64(key)), Identity: Hex(identity), Max: most,
			Window: "1h", Set: time.Now().UTC(), Author: "bob"})
	}
	text, err := EncodeLimits(limits)
	testkit.Must(t, err)
	d, err := NewDocument(text, "bob", "", time.Now())
	testkit.Must(t, err)
	d.Version.Version = version
	return d
}

// Rules and overrides come in force by messages, without a poll; overrides stay when rules change.
func TestSourceFollows(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	f := follow(t, "redis://"+redis.Addr(), "", never)
	testkit.Eventually(t, "it says that there are no rules", f.hasProblem("no rules have been published"))
	testkit.Eventually(t, "it is subscribed", func() bool { return f.Status().Subscribed })
	publish(t, s, Limits, limitsOf(t, 1, fingerprint, map[counters.Key]uint64{7: 70}))
	publish(t, s, Rules, rulesOf(t, 1, 10))
	f.awaits(t, 10)
	publish(t, s, Rules, rulesOf(t, 2, 20))
	f.awaits(t, 20)
	if f.limit(7) != 70 {
		t.Errorf("the override is %d", f.limit(7))
	}
	publish(t, s, Limits, limitsOf(t, 2, fingerprint, map[counters.Key]uint64{7: 71, 8: 80}))
	testkit.Eventually(t, "the overrides are in force", func() bool { return f.limit(7) == 71 && f.limit(8) == 80 })
	st := f.Status()
	if st.InForce != [kinds]uint64{2, 2} || st.Stored != st.InForce || st.FromCopy || len(st.Problems) > 0 ||
		st.Overrides != 2 || st.Unused != 0 || time.Since(st.Contact) > testkit.Patience {
		t.Errorf("%+v", st)
	}
}

// A lost subscription leaves no node behind: polling finds what no message brings.
func TestSourcePolls(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	redis.Do("ACL", "SETUSER", "deaf", "on", "nopass", "~*", "resetchannels", "+@all", "-subscribe")
	f := follow(t, "redis://deaf:x@"+redis.Addr(), "", quick)
	for v := range uint64(3) {
		publish(t, s, Rules, rulesOf(t, v+1, int(v+10)))
		f.awaits(t, v+10)
	}
	if f.Status().Subscribed {
		t.Error("it says that messages arrive")
	}
}

// Whatever the store comes to hold, the last good version stays in force, and the source says why; it is reported once.
func TestSourceKeepsTheLastGood(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	publish(t, s, Rules, rulesOf(t, 5, 50))
	publish(t, s, Limits, limitsOf(t, 5, fingerprint, map[counters.Key]uint64{7: 70}))
	f := follow(t, "redis://"+redis.Addr(), "", quick)
	f.awaits(t, 50)
	kept := func(what, says string) {
		t.Helper()
		testkit.Eventually(t, what, f.hasProblem(says))
		if f.limit(0) != 50 || f.limit(7) != 70 || f.Status().InForce != [kinds]uint64{5, 5} {
			t.Errorf("%s: %d and %d are in force, %+v", what, f.limit(0), f.limit(7), f.Status())
		}
	}
	bad, err := NewDocument([]byte(`{"files":[{"name":"r.yaml","text":"domain: [\n"}]}`), "mallory", "bad", time.Now())
	testkit.Must(t, err)
	bad.Version.Version = 6
	publish(t, s, Rules, bad)
	kept("rules that do not parse", "version 6 by mallory")
	bad, _ = NewDocument([]byte(`{"limits":[{"rule":"test/client","key":"1","max":1}]}`), "mallory", "", time.Now())
	bad.Version.Version = 6
	publish(t, s, Limits, bad)
	kept("overrides that are out of range", "limits cannot be used")
	if _, refused := f.count(); refused != 2 {
		t.Errorf("two versions were refused %d times", refused)
	}
	redis.Do("SET", Rules.key(inForce), "garbage")
	kept("garbage", "no edgelimit has written")
	redis.Do("FLUSHALL")
	kept("a flush", "holds no rules any more: version 5 stays in force; publish them with --above 5")
	publish(t, s, Rules, rulesOf(t, 1, 10))
	kept("an earlier version", "an earlier version of the rules, 1: version 5 stays in force")
	redis.Do("FLUSHALL")
	publish(t, s, Rules, rulesOf(t, 5, 10))
	kept("another text", "another text as the same version")
	publish(t, s, Rules, rulesOf(t, 6, 60))
	f.awaits(t, 60)
	publish(t, s, Limits, limitsOf(t, 6, fingerprint, nil))
	testkit.Eventually(t, "all is well", func() bool { return len(f.Status().Problems) == 0 && f.limit(7) == 60 })
	redis.Kill()
	testkit.Eventually(t, "Redis is gone", f.hasProblem("does not answer"))
	if !f.log.HasLine("WARN", "does not answer") {
		t.Error("the log does not say so")
	}
	redis.Restart(regionstest.Empty)
	publish(t, open(t, "redis://"+redis.Addr()), Rules, rulesOf(t, 7, 70))
	f.awaits(t, 70)
}

// Overrides that were made with another secret, or of a rule that is gone, have no effect, and that is reported.
func TestSourceReportsUnusedOverrides(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	publish(t, s, Rules, rulesOf(t, 1, 10))
	publish(t, s, Limits, limitsOf(t, 1, fingerprint+1, map[counters.Key]uint64{7: 70, 8: 80}))
	f := follow(t, "redis://"+redis.Addr(), "", quick)
	f.awaits(t, 10)
	if st := f.Status(); f.limit(7) != 10 || st.Overrides != 0 || st.Unused != 2 || st.OtherKey != 2 ||
		!f.log.HasLine("another key file") {
		t.Errorf("%+v", st)
	}
}

// A node starts from its copies while the store is away, says so, and takes what the store has once it is there. A copy
// that is torn or edited is refused.
func TestCopies(t *testing.T) {
	t.Parallel()
	redis, dir := regionstest.StartRedis(t), filepath.Join(t.TempDir(), "new", "copies")
	url := "redis://" + redis.Addr()
	s := open(t, url)
	publish(t, s, Rules, rulesOf(t, 3, 30))
	publish(t, s, Limits, limitsOf(t, 4, fingerprint, map[counters.Key]uint64{7: 70}))
	f := follow(t, url, dir, quick)
	f.awaits(t, 30)
	files := []string{Rules.copyName(dir), Limits.copyName(dir)}
	testkit.Eventually(t, "copies are written", func() bool {
		return !slices.ContainsFunc(files, func(name string) bool {
			info, err := os.Stat(name)
			return err != nil || info.Mode() != 0o600
		})
	})
	f.stop()

	f = follow(t, url, dir, quick) // with the store: no copy is needed
	f.awaits(t, 30)
	if loads, _ := f.count(); loads != 1 || f.Status().FromCopy {
		t.Errorf("%d loads, %+v", loads, f.Status())
	}
	f.stop()

	redis.Kill()
	f = follow(t, url, dir, quick)
	f.awaits(t, 30)
	testkit.Eventually(t, "it says where the rules are from", func() bool { return f.Status().FromCopy })
	if f.limit(7) != 70 || !f.log.HasLine("WARN", "from the copy on disk", "rules_version=3", "limits_version=4") ||
		!f.hasProblem("does not answer")() {
		t.Errorf("the override is %d, %+v: %s", f.limit(7), f.Status(), f.log.String())
	}
	redis.Restart(regionstest.Empty) // an earlier version than the copy's is a downgrade
	publish(t, s, Rules, rulesOf(t, 1, 10))
	testkit.Eventually(t, "the downgrade is refused", f.hasProblem("version 3 stays in force"))
	publish(t, s, Rules, rulesOf(t, 4, 40))
	f.awaits(t, 40)
	publish(t, s, Limits, limitsOf(t, 5, fingerprint, nil))
	testkit.Eventually(t, "the store confirms", func() bool { return !f.Status().FromCopy && f.limit(7) == 40 })
	f.stop()

	redis.Kill()
	for _, name := range files {
		b, err := os.ReadFile(name)
		testkit.Must(t, err)
		b[len(b)-5] ^= 1
		testkit.Must(t, os.WriteFile(name, b, 0o600))
	}
	f = follow(t, url, dir, quick)
	testkit.Eventually(t, "edited copies are refused", f.hasProblem("its checksum is wrong"))
	if f.limit(0) != 0 || !f.log.HasLine("ERROR", "checksum") {
		t.Errorf("a limit of %d is in force", f.limit(0))
	}
}

// A directory that cannot be written to is a problem that is reported, and not one of the rules.
func TestCopiesCannotBeWritten(t *testing.T) {
	t.Parallel()
	redis, dir := regionstest.StartRedis(t), filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(dir, nil, 0o600))
	publish(t, open(t, "redis://"+redis.Addr()), Rules, rulesOf(t, 1, 10))
	f := follow(t, "redis://"+redis.Addr(), dir, quick)
	f.awaits(t, 10)
	testkit.Eventually(t, "it is a problem", f.hasProblem("copy of the rules"))
}

// Whatever a server that is no Redis answers, the source survives it, and what is in force stays.
func TestSourceOfAHostileServer(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"$9223372036854775806\r\n", "*9223372036854775806\r\n", "*2\r\n$-1\r\n*1\r\n:1\r\n",
		"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", ":1\r\n", "+\r\n", "-ERR \x1b[2J\r\n", "HTTP/1.1 400\r\n\r\n",
		"*0\r\n", "*-1\r\n", ">3\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		testkit.Must(t, err)
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if _, err := conn.Read(make([]byte, 1<<10)); err == nil {
					_, _ = conn.Write([]byte(answer)) // it may be gone
				}
				_ = conn.Close()
			}
		})
		f := follow(t, "redis://"+l.Addr().String(), "", quick)
		testkit.Eventually(t, fmt.Sprintf("%q is a problem", answer),
			func() bool { return len(f.Status().Problems) > 0 })
		if loads, _ := f.count(); loads > 0 {
			t.Errorf("%q: there were %d loads", answer, loads)
		}
		f.stop()
		_ = l.Close()
		serving.Wait()
	}
}
