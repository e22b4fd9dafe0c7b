package respapi

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestPipelineIsAnsweredInOrderAndAtOnce(t *testing.T) {
	var said strings.Builder
	var want []string
	for range 16 {
		said.WriteString(array("CL.THROTTLE", "k", "7", "1", "100"))
	}
	for i := range 8 {
		want = append(want, "[0 8 "+string(rune('7'-i))+" -1 "+string(rune('1'+i))+"00]")
	}
	want = append(want, slices.Repeat([]string{"[1 8 0 100 800]"}, 8)...)
	conn := &script{reads: []string{said.String()}}
	newSession(New(newBank(), quiet()), conn).serve()
	if got := replies(t, conn.written.String()); !slices.Equal(got, want) {
		t.Errorf("replies %q", got)
	}
	if conn.writes != 1 {
		t.Errorf("%d writes for one read", conn.writes)
	}
}

// However a conversation is cut into packets, the replies are the same.
func TestPacketsDoNotMatter(t *testing.T) {
	said := array(
		"HELLO",
		"3",
	) + "PING\r\n" + array("ECHO", strings.Repeat("x", 9000)) + "\r\n" + array("CL.THROTTLE", "k", "1", "1", "9") +
		array("ECHO", strings.Repeat("y", maxArg)) + array(
		"NOPE",
		"a b",
	) + `ECHO "a b"` + "\r\n" + strings.Repeat("PING\r\n", 3000) + "*x\r\n"
	want := converse(New(newBank(), quiet()), said)
	if n := len(replies(t, want)); n != 3008 {
		t.Fatalf("%d replies", n)
	}
	for _, size := range []int{1, 2, 3, 7, 4095, 4096, 4097} {
		var packets []string
		for p := range slices.Chunk([]byte(said), size) {
			packets = append(packets, string(p))
		}
		if got := converse(New(newBank(), quiet()), packets...); got != want {
			t.Errorf("packets of %d bytes: %d bytes of replies in place of %d", size, len(got), len(want))
		}
	}
}

func TestTotals(t *testing.T) {
	s := New(newBank(), quiet())
	converse(
		s, "cl.throttle k 0 1 1\ncl.throttle k 0 1 1\ncl.throttle k 0 1 1 0\nping\nnope\ncl.throttle k 0 0 0\n*x\r\n",
	)
	converse(s, "POST / HTTP/1.1\r\n")
	want := Stats{Malformed: 2, Allowed: 1, Denied: 1, Failed: 3, Other: 2}
	if got := s.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Whatever is declared, memory is taken for what was sent.
func TestAllocationsAreBoundedByTheInput(t *testing.T) {
	for name, said := range map[string]string{
		"many words declared":  "*1024\r\n",
		"a long word declared": "*2\r\n$4\r\nECHO\r\n$16384\r\n",
		"more than allowed":    "*1048576\r\n$536870912\r\n",
		"empty words":          array(slices.Repeat([]string{""}, maxArgs)...),
		"long words":           array("ECHO", strings.Repeat("x", maxArg)),
		"an endless line":      strings.Repeat("x", maxRequest),
		"a line of words":      strings.Repeat("x ", maxArgs) + "\n",
		"quotes":               "ECHO \"" + strings.Repeat(`\x41`, 4000) + "\"\n",
		"unknown commands":     strings.Repeat("x\n", 100),
		"wrong shapes":         strings.Repeat("cl.throttle k 1 1 x\n", 100),
	} {
		s := New(newBank(), quiet())
		var packets []string
		for p := range slices.Chunk([]byte(said), 1000) {
			packets = append(packets, string(p))
		}
		conn := &script{reads: packets}
		conn.written.Grow(1 << 20)
		if took := allocated(func() { newSession(s, conn).serve() }); took > 64<<10+4*uint64(len(said)) {
			t.Errorf("%s: %d bytes for %d", name, took, len(said))
		}
	}
}

// A session of which nobody speaks keeps little, however long its pipelines were.
func TestIdleSessionsAreSmall(t *testing.T) {
	conn := &script{
		reads: []string{
			array("ECHO", strings.Repeat("x", maxArg)), array(slices.Repeat([]string{"a"}, maxArgs)...), "PING\r\n",
		},
	}
	c := newSession(New(newBank(), quiet()), conn)
	c.serve()
	if len(replies(t, conn.written.String())) != 3 {
		t.Fatalf("replies %.80q", conn.written.String())
	}
	if kept := len(c.in) + cap(c.out) + 24*cap(c.args); kept > idleIn+idleOut+24*idleArgs {
		t.Errorf("it keeps %d bytes", kept)
	}
}

func TestAnswersAllocateNothing(t *testing.T) {
	if testkit.Enabled {
		t.Log("with the race detector, allocations are not those of a released binary: only that it answers is tried")
	}
	said := []byte(
		array("CL.THROTTLE", "user123", "1000000", "30",
			"60") + array("PING") + array("CL.THROTTLE", "user123", "0", "1", "60"),
	)
	c := newSession(New(newBank(), quiet()), &script{})
	answer := func() {
		c.begin, c.end = 0, copy(c.in, said)
		if !c.execute() || c.begin != len(said) {
			t.Fatal("it did not answer")
		}
		c.out = c.out[:0]
	}
	answer()
	if n := testing.AllocsPerRun(1000, answer); n != 0 && !testkit.Enabled {
		t.Errorf("%v allocations", n)
	}
}

// FuzzSession: whatever a client sends, in whatever packets, each command gets one reply of the protocol, and the
// packets do not matter.
func FuzzSession(f *testing.F) {
	for _, s := range []string{
		array("CL.THROTTLE", "user123", "15", "30", "60"), array("HELLO", "3") + array("COMMAND", "DOCS") +
			"CLIENT GETNAME\r\n",
		"AUTH a b\r\nRESET\r\nINFO\r\nQUIT\r\nPING\r\n", "cl.throttle k 1099511627775 1 31622400 9223372036854775807\n",
		"\"\\r\\n\" x\n",
		"HELLO 3 AUTH default x SETNAME y\nCLIENT ID\n*1\r\n$x",
		"throttle k 10 100 60 3\ncl.throttle k 9 1 60 -2\nDEL k x\nEXISTS k k\nTTL k\nPTTL k\nTYPE k\nEXPIRE k 9\n",
		"SELECT 3\nCLIENT TRACKING ON OPTIN\nCLIENT CACHING YES\nPEXPIRE k 0\nUNLINK k\n",
		"MULTI\nMULTI\ncl.throttle k 1 1 1\nHELLO 3\nSELECT 1\nEXEC\nMULTI\nGET\nEXEC\nMULTI\nDISCARD\nMULTI\nRESET\n",
		"EVALSHA " + allowN + " 1 k 10 10 0.5 1\nEVALSHA " + allowAtMost + " 1 k 1e1 10 1 -1\nEVAL x 1 k\n",
		"SCRIPT LOAD x\nSCRIPT EXISTS " + allowN + "\n",
	} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, said string, size int) {
		opt := quiet()
		opt.RedisRate = true
		whole := converse(New(newBank(), opt), said)
		got := replies(t, whole)
		if want := countCommands([]byte(said)); len(got) > want {
			t.Fatalf("%d replies to %d commands: %q", len(got), want, got)
		}
		var packets []string
		for p := range slices.Chunk([]byte(said), max(1, size%5000)) {
			packets = append(packets, string(p))
		}
		server := New(newBank(), opt)
		if cut := converse(server, packets...); cut != whole || server.long.Stats().Used != 0 {
			t.Fatalf("in packets %q\nat once %q", cut, whole)
		}
	})
}

// countCommands is how many replies there are, at most.
func countCommands(said []byte) (n int) {
	for {
		words, took, err := parse(said, nil)
		switch {
		case err != nil:
			return n + 1
		case took == 0:
			return n
		case len(words) > 0:
			n++
		}
		said = said[took:]
	}
}

func TestDeadlinesAreRenewedSeldom(t *testing.T) {
	var d deadline
	var set []time.Time
	note := func(at time.Time) error {
		set = append(set, at)
		return nil
	}
	for s := range 200 {
		d.renew(note, noon.Add(time.Duration(s)*time.Second), 100*time.Second)
	}
	if len(set) != 8 {
		t.Errorf("it was set %d times in two of its spans", len(set))
	}
	for i, at := range set {
		if want := noon.Add(time.Duration(26*i+100) * time.Second); !at.Equal(want) {
			t.Errorf("the deadline number %d is at %v, want %v", i, at, want)
		}
	}
	d.renew(note, noon.Add(200*time.Second), time.Second)
	if got := set[len(set)-1]; !got.Equal(noon.Add(201 * time.Second)) {
		t.Errorf("another span: %v", got)
	}
}

// The limiter is asked what the client says.
func TestLimiterIsAsked(t *testing.T) {
	var asked []string
	s := New(listener(func(identity []byte, charge, capacity time.Duration) {
		asked = append(asked, fmt.Sprintf("%s %v %v", identity, charge, capacity))
	}), quiet())
	converse(s, "cl.throttle a 1 2 3\ncl.throttle \"b c\" 4 5 6 2\nthrottle a 4 5 6\n")
	if want := []string{"a 1.5s 3s", "b c 2.4s 6s", "a 1.2s 4.8s"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
}

// listener is a limiter that allows everything, and hears what is asked.
type listener func(identity []byte, charge, capacity time.Duration)

func (f listener) TakeDebt(identity []byte, charge, capacity time.Duration) counters.Decision {
	f(identity, charge, capacity)
	return counters.Decision{Allowed: true}
}

func (listener) GiveBack([]byte, time.Duration, time.Duration) (time.Duration, bool) { return 0, true }
