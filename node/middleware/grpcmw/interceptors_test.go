package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/middleware/grpcmw"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

var (
	allowed = counters.Decision{
		Allowed: true, Rule: "q", Limit: 3, Remaining: 2, Window: time.Minute, ResetAfter: time.Second,
	}
	denied = counters.Decision{
		Rule: "q", Limit: 3, Window: time.Minute, RetryAfter: 10 * time.Second, ResetAfter: time.Minute,
	}
	never  = counters.Decision{Rule: "q", Limit: 3, Window: time.Minute, RetryAfter: counters.Never}
	queued = counters.Decision{Allowed: true, Rule: "q", Limit: 3, Window: time.Minute, Delay: 3 * time.Second}
)

// one describes every call in the same way.
func one(context.Context, string) (rules.Request, error) {
	return rules.Request{Rule: "q", Identity: "x"}, nil
}

func TestUnary(t *testing.T) {
	tests := []struct {
		name  string
		said  []counters.Decision
		err   error
		code  codes.Code
		limit string // the trailer ratelimit
	}{
		{"allowed", []counters.Decision{allowed}, nil, codes.OK, `"q";r=2;t=1`},
		{"denied", []counters.Decision{denied}, nil, codes.ResourceExhausted, `"q";r=0;t=10`},
		{"one layer denies", []counters.Decision{allowed, denied}, nil, codes.ResourceExhausted, `"q";r=0;t=10`},
		{"no rule", []counters.Decision{{Allowed: true}}, nil, codes.OK, ""},
		{"no decision", nil, errors.New("broken"), codes.OK, ""},
	}
	for _, tt := range tests {
		w, end := open(t, &limiter{answer: func(int) ([]counters.Decision, error) { return tt.said, tt.err }},
			grpcmw.Options{Describe: one})
		var header, trailer metadata.MD
		resp, err := w.UnaryCall(t.Context(), ask("hello"), grpc.Header(&header), grpc.Trailer(&trailer))
		if status.Code(err) != tt.code || (err == nil) != (string(resp.GetPayload().GetBody()) == "hello") ||
			w.shop.calls() != map[bool]int{true: 1}[err == nil] {
			t.Errorf("%s: %v, %v, %d served", tt.name, resp, err, w.shop.calls())
		}
		if got := strings.Join(trailer["ratelimit"], "; "); got != tt.limit || len(header["ratelimit"]) != 0 {
			t.Errorf("%s: the trailer says %q, the header %v", tt.name, got, header)
		}
		if err != nil != (len(trailer["retry-after"]) == 1) ||
			err != nil != (len(trailer["grpc-retry-pushback-ms"]) == 1) {
			t.Errorf("%s: %v", tt.name, trailer)
		}
		end()
	}
}

// The option, or Describe, says what happens to calls without a decision.
func TestOnFailure(t *testing.T) {
	for _, tt := range []struct {
		described, option, want rules.Failure
		code                    codes.Code
	}{
		{code: codes.OK},
		{option: rules.FailClosed, want: rules.FailClosed, code: codes.ResourceExhausted},
		{described: rules.FailOpen, option: rules.FailClosed, want: rules.FailOpen, code: codes.OK},
		{described: rules.FailClosed, want: rules.FailClosed, code: codes.ResourceExhausted},
	} {
		l := &limiter{answer: func(int) ([]counters.Decision, error) { return nil, errors.New("broken") }}
		w, end := open(t, l, grpcmw.Options{OnFailure: tt.option,
			Describe: func(context.Context, string) (rules.Request, error) {
				return rules.Request{Rule: "q", Identity: "x", OnFailure: tt.described}, nil
			}})
		_, err := w.UnaryCall(t.Context(), ask("hello"))
		if status.Code(err) != tt.code || w.shop.calls() != map[codes.Code]int{codes.OK: 1}[tt.code] {
			t.Errorf("%+v: %v, %d served", tt, err, w.shop.calls())
		}
		if got := l.requests()[0].OnFailure; got != tt.want {
			t.Errorf("%+v: asked with %v", tt, got)
		}
		end()
	}
}

// TestDenial: what a client is told to do, and which rules it hit.
func TestDenial(t *testing.T) {
	tight := counters.Decision{Rule: "tight", Limit: 1, Window: time.Second, RetryAfter: 1500 * time.Microsecond}
	for _, tt := range []struct {
		layers []counters.Decision
		wait   time.Duration // 0: for ever
		rules  string
	}{
		{[]counters.Decision{tight}, 1500 * time.Microsecond, "rule:tight it admits 1 per 1 s"},
		{[]counters.Decision{denied, allowed, tight, denied}, 10 * time.Second,
			"rule:q it admits 3 per 1 min, rule:tight it admits 1 per 1 s"},
		{[]counters.Decision{tight, never}, 0, "rule:tight it admits 1 per 1 s, rule:q it admits 3 per 1 min"},
	} {
		w, end := open(t, &limiter{answer: func(int) ([]counters.Decision, error) { return tt.layers, nil }},
			grpcmw.Options{Describe: one})
		var trailer metadata.MD
		_, err := w.UnaryCall(t.Context(), ask("hello"), grpc.Trailer(&trailer))
		var violated []string
		var wait time.Duration
		for _, detail := range status.Convert(err).Details() {
			switch d := detail.(type) {
			case *errdetails.QuotaFailure:
				for _, v := range d.Violations {
					violated = append(violated, v.Subject+" "+v.Description)
				}
			case *errdetails.RetryInfo:
				wait = d.RetryDelay.AsDuration()
			}
		}
		if got := strings.Join(violated, ", "); got != tt.rules {
			t.Errorf("violated are %s, want %s", got, tt.rules)
		}
		pushback := fmt.Sprint(wait.Milliseconds())
		if tt.wait == 0 {
			pushback = "-1"
		}
		if most := tt.wait*103/100 + time.Millisecond; wait < tt.wait || wait > most ||
			strings.Join(trailer["grpc-retry-pushback-ms"], " ") != pushback {
			t.Errorf("to wait for %v, want %v to %v; %v", wait, tt.wait, most, trailer)
		}
		if text := status.Convert(err).Message(); !strings.Contains(text, "rule ") ||
			(tt.wait == 0) != strings.Contains(text, "no wait helps") {
			t.Errorf("the message is %q", text)
		}
		end()
	}
}

// TestManyViolations: however many rules deny, the trailers stay small.
func TestManyViolations(t *testing.T) {
	var layers []counters.Decision
	for i := range rules.MaxDescriptors {
		layers = append(
			layers,
			counters.Decision{
				Rule: fmt.Sprintf("%02d%s", i, strings.Repeat("r", counters.MaxRuleName-2)), Limit: 1,
				RetryAfter: time.Second,
			},
		)
	}
	w, end := open(t, &limiter{answer: func(int) ([]counters.Decision, error) { return layers, nil }},
		grpcmw.Options{Describe: one}, grpc.WithMaxHeaderListSize(10<<10))
	defer end()
	_, err := w.UnaryCall(t.Context(), ask("hello"))
	details := status.Convert(err).Details()
	if status.Code(err) != codes.ResourceExhausted || len(details) != 2 ||
		len(details[0].(*errdetails.QuotaFailure).Violations) < 3 {
		t.Errorf("%v with %d details", err, len(details))
	}
}

// TestRetryPolicy: a client with gRPC's own retry policy comes again when it was told to, and not where no wait helps.
func TestRetryPolicy(t *testing.T) {
	policy := grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNKNOWN"]}}]}`)
	testkit.VirtualTime(t, func(t *testing.T) {
		w, end := open(t, inOrder(denied, denied, allowed), grpcmw.Options{Describe: one}, policy)
		defer end()
		began := time.Now()
		_, err := w.UnaryCall(t.Context(), ask("hello"))
		if took := time.Since(began); err != nil || w.shop.calls() != 1 || took < 20*time.Second ||
			took > 21*time.Second {
			t.Errorf("%v after %v, %d served", err, took, w.shop.calls())
		}
	})
	testkit.VirtualTime(t, func(t *testing.T) {
		l := inOrder(never)
		w, end := open(t, l, grpcmw.Options{Describe: one}, policy)
		defer end()
		began := time.Now()
		_, err := w.UnaryCall(t.Context(), ask("hello"))
		if took := time.Since(began); status.Code(err) != codes.ResourceExhausted || took != 0 ||
			len(l.requests()) != 1 {
			t.Errorf("%v after %v and %d attempts", err, took, len(l.requests()))
		}
	})
	// what is said of a call that passes leaves the handler's own errors to the policy
	testkit.VirtualTime(t, func(t *testing.T) {
		w, end := open(t, inOrder(allowed), grpcmw.Options{Describe: one}, policy)
		defer end()
		if _, err := w.UnaryCall(t.Context(), ask("fail")); status.Code(err) != codes.Unknown || w.shop.calls() != 4 {
			t.Errorf("%v after %d attempts", err, w.shop.calls())
		}
	})
	testkit.VirtualTime(t, func(t *testing.T) {
		w, end := open(t, inOrder(denied, allowed), grpcmw.Options{Describe: one, PerMessage: true}, policy)
		defer end()
		began := time.Now()
		stream, err := w.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{})
		testkit.Must(t, err)
		_, err = stream.Recv()
		if took := time.Since(began); err != nil || w.shop.calls() != 1 || took < 10*time.Second {
			t.Errorf("a stream: %v after %v, %d served", err, took, w.shop.calls())
		}
	})
}

// TestQueue: a call waits for its turn, unless that is after its deadline or its caller has gone.
func TestQueue(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		w, end := open(t, inOrder(queued), grpcmw.Options{Describe: one})
		defer end()
		began := time.Now()
		if _, err := w.UnaryCall(t.Context(), ask("hello")); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began = time.Now()
		if _, err := w.UnaryCall(soon, ask("hello")); status.Code(err) != codes.DeadlineExceeded ||
			time.Since(began) != 0 {
			t.Errorf("before its deadline: %v after %v", err, time.Since(began))
		}
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if _, err := w.UnaryCall(gone, ask("hello")); status.Code(err) != codes.Canceled || w.shop.calls() != 1 {
			t.Errorf("who has gone: %v, %d served", err, w.shop.calls())
		}
	})
}

// TestStream: a stream is charged once, and its messages are not.
func TestStream(t *testing.T) {
	l := inOrder(allowed, denied)
	w, end := open(t, l, grpcmw.Options{Describe: one})
	defer end()
	stream, err := w.FullDuplexCall(t.Context())
	testkit.Must(t, err)
	talk(t, stream, 5)
	testkit.Must(t, stream.CloseSend())
	if _, err := stream.Recv(); err == nil || w.shop.calls() != 5 || len(l.requests()) != 1 ||
		strings.Join(stream.Trailer()["ratelimit"], "") != `"q";r=2;t=1` {
		t.Errorf("%v, %d served, %d asked, %v", err, w.shop.calls(), len(l.requests()), stream.Trailer())
	}
	if stream, err = w.FullDuplexCall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted || w.shop.calls() != 5 ||
		len(stream.Trailer()["retry-after"]) != 1 {
		t.Errorf("the second: %v, %d served, %v", err, w.shop.calls(), stream.Trailer())
	}
}

// TestPerMessage: each message is charged, opening is not, and a denial ends the stream.
func TestPerMessage(t *testing.T) {
	l := inOrder(allowed, allowed, denied)
	w, end := open(t, l, grpcmw.Options{Describe: one, PerMessage: true})
	defer end()
	stream, err := w.FullDuplexCall(t.Context())
	testkit.Must(t, err)
	talk(t, stream, 2)
	testkit.Must(t, stream.Send(&grpc_testing.StreamingOutputCallRequest{}))
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted || w.shop.calls() != 2 ||
		len(l.requests()) != 3 {
		t.Errorf("the third: %v, %d served, %d asked", err, w.shop.calls(), len(l.requests()))
	}
	if got := stream.Trailer(); len(got["ratelimit"]) != 1 || len(got["grpc-retry-pushback-ms"]) != 1 {
		t.Errorf("the trailers are %v", got)
	}
	if stream, err = w.FullDuplexCall(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, stream.CloseSend())
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) || len(l.requests()) != 3 {
		t.Errorf("without a message: %v, %d asked", err, len(l.requests()))
	}
}

// TestProbesAreNotLimited: neither Check nor Watch, and also per message.
func TestProbesAreNotLimited(t *testing.T) {
	for _, each := range []bool{false, true} {
		l := inOrder(denied)
		w, end := open(t, l, grpcmw.Options{PerMessage: each})
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := w.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		watch, err := w.health.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		testkit.Must(t, err)
		if _, err := watch.Recv(); err != nil || len(l.requests()) != 0 {
			t.Errorf("%v, %d asked", err, len(l.requests()))
		}
		cancel()
		end()
	}
}

func TestOptions(t *testing.T) {
	if _, err := grpcmw.New(inOrder(allowed), grpcmw.Options{Headers: []string{"draft99"}}); err == nil ||
		!strings.Contains(err.Error(), "draft99") {
		t.Errorf("unknown headers: %v", err)
	}
	l := inOrder(denied)
	w, end := open(t, l, grpcmw.Options{
		Describe: func(context.Context, string) (rules.Request, error) { return rules.Request{Domain: "edge"}, nil },
		Headers:  []string{"off"},
	})
	defer end()
	if _, err := w.UnaryCall(t.Context(), ask("hello")); err != nil || len(l.requests()) != 0 {
		t.Errorf("a call that no rule can be meant for: %v, %d asked", err, len(l.requests()))
	}
}

// talk sends so many messages and reads their echoes.
func talk(t *testing.T, stream grpc_testing.TestService_FullDuplexCallClient, messages int) {
	t.Helper()
	for range messages {
		testkit.Must(t, stream.Send(&grpc_testing.StreamingOutputCallRequest{}))
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

// A call whose turn comes after its deadline leaves the queue: the next one does not stand behind it.
func TestDeadlineLeavesTheQueue(t *testing.T) {
	set, err := rulefile.Parse("rules.yaml", []byte("domain: edge\ndescriptors: [{key: client, rate_limit: "+
		"{name: q, algorithm: leaky_bucket, queue: true, unit: hour, requests_per_unit: 10}}]"))
	testkit.Must(t, err)
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Health, cfg.Admin, cfg.RuleSet = "", "", "", set
	n, err := node.New(cfg)
	testkit.Must(t, err)
	defer n.Close()
	guard, err := grpcmw.New(n, grpcmw.Options{Describe: func(context.Context, string) (rules.Request, error) {
		return rules.Request{Rule: "q", Identity: "x"}, nil
	}})
	testkit.Must(t, err)
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []codes.Code{codes.OK, codes.DeadlineExceeded, codes.DeadlineExceeded} {
		_, err := guard.Unary(soon, nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Cart/Buy"},
			func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	d, err := n.Take(t.Context(), rules.Request{Rule: "q", Identity: "x", Peek: true})
	if err != nil || d.Delay <= 0 || d.Delay > 6*time.Minute {
		t.Errorf("the next call waits for %v, %v", d.Delay, err)
	}
}
