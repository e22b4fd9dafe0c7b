package reference

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// exchange is what both servers are asked.
type exchange struct {
	name    string
	request *rls.RateLimitRequest // by gRPC, or nil:
	http    *httpRequest          // or nil:
	health  string                // the service whose health grpc.health.v1 is asked for
	wait    time.Duration         // asked only once a window of this length begins
}

type httpRequest struct {
	debug              bool // at DEBUG_PORT
	method, path, body string
	rateLimit          *rls.RateLimitRequest // that the body is, or nil
}

// String is what was asked, short enough for a line.
func (e *exchange) String() string {
	asked := "health of " + e.health
	switch {
	case e.request != nil:
		asked = strings.Join(strings.Fields(prototext.MarshalOptions{}.Format(e.request)), " ")
	case e.http != nil:
		asked = e.http.method + " " + e.http.path + " " + e.http.body
	}
	if len(asked) > 300 {
		asked = fmt.Sprintf("%s… (%d bytes)", asked[:300], len(asked))
	}
	return e.name + ": " + asked
}

// ask returns what a server answers.
func (s *server) ask(ctx context.Context, e *exchange) answer {
	switch {
	case e.request != nil:
		return byGRPC(s.client.ShouldRateLimit(ctx, e.request))
	case e.http != nil:
		return s.askHTTP(e.http)
	}
	return byGRPC(healthpb.NewHealthClient(s.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: e.health}))
}

func byGRPC(response proto.Message, err error) answer {
	st := status.Convert(err)
	a := answer{"status code": st.Code().String(), "status message": st.Message()}
	if err == nil {
		a.addMessage("", response.ProtoReflect())
	}
	return a
}

func (s *server) askHTTP(r *httpRequest) answer {
	addr := s.http
	if r.debug {
		addr = s.debug
	}
	code, kind, body, err := testkit.Fetch(web, r.method, "http://"+addr+r.path, r.body)
	if err != nil {
		return answer{"status code": "no answer"}
	}
	a := answer{"status code": fmt.Sprint(code), "content type": kind}
	if r.path != "/rlconfig" {
		a.addJSON(body)
		return a
	}
	for line := range strings.Lines(body) { // which are in any order
		a[strings.TrimSpace(line)] += "line "
	}
	return a
}

// A second has begun for both servers soonAfter it did, as edgelimit's clock may lag for some milliseconds, and what is
// asked at latest before the next one is answered within it, but for stalls. The first second of a minute belongs to
// exchanges that wait for it: windows of several lengths begin there, and the reference tells them apart by their
// beginnings alone.
const (
	soonAfter    = 30 * time.Millisecond
	beforeSecond = 40 * time.Millisecond
	beforeMinute = 250 * time.Millisecond
)

// pause returns how long to wait until both can be asked within a second, once a window of the given length has begun
// since the time of the exchange before.
func pause(now, last time.Time, window time.Duration) time.Duration {
	begin := now
	if window > 0 {
		if next := last.Truncate(window).Add(window); next.After(begin) {
			begin = next
		}
	}
	into := begin.Sub(begin.Truncate(time.Second))
	minute := begin.Truncate(time.Minute)
	switch next := minute.Add(time.Minute); {
	case window == 0 && (begin.Sub(minute) < time.Second || next.Sub(begin) < beforeMinute):
		begin = begin.Add(beforeMinute).Truncate(time.Minute).Add(time.Second + soonAfter)
	case into < soonAfter:
		begin = begin.Add(soonAfter - into)
	case into > time.Second-beforeSecond:
		begin = begin.Add(time.Second - into + soonAfter)
	}
	return begin.Sub(now)
}

// comparison is an exchange and where its answers differ.
type comparison struct {
	*setting
	*exchange
	at           time.Time
	theirs, ours answer
	differences  []difference
	trace        trace
}

// play has the pair answer a script. It reports false if the answers of an exchange are of two seconds: then the counts
// of the two differ from there on.
func (p *pair) play(ctx context.Context, s *setting, script []exchange) (all []comparison, undisturbed bool) {
	last, second := time.Now(), int64(0)
	for i := range script {
		e := &script[i]
		time.Sleep(pause(time.Now(), last, e.wait))
		last = time.Now()
		if last.Unix() != second && !p.isIn(ctx, last.Unix()) {
			return nil, false
		}
		second = last.Unix()
		theirs := p.theirs.ask(ctx, e)
		ours := p.ours.ask(ctx, e)
		if second != time.Now().Unix() {
			return nil, false
		}
		all = append(all, comparison{setting: s, exchange: e, at: last,
			theirs: theirs, ours: ours, differences: compare(theirs, ours)})
	}
	return all, true
}

// perform plays a script with fresh servers until it is undisturbed.
func perform(t *testing.T, s *setting, files map[string]string, script []exchange) []comparison {
	t.Helper()
	return performWith(t, s, script, func() *pair { return startPair(t, s, files) })
}

func performWith(t *testing.T, s *setting, script []exchange, start func() *pair) []comparison {
	t.Helper()
	for range 5 {
		p := start()
		all, undisturbed := p.play(t.Context(), s, script)
		p.stop()
		if undisturbed {
			return all
		}
	}
	t.Fatalf("%s: five times two answers were of different seconds: the machine is too busy for this test", s.name)
	return nil
}
