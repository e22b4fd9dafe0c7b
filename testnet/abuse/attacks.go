package abuse

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// attack is a kind of abuse.
type attack struct {
	name string
	// start starts it. awaitOpen returns once all its connections are open; stop ends it and counts the outcomes.
	start func(ctx context.Context) (awaitOpen func(), stop func() map[string]int)
	// refusal is the error reply to connections over the limit. If it is empty, none is over the limit.
	refusal string
}

const (
	checkRequest = "POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: 2\r\n\r\n{}"
	refusalHTTP  = "503 Service Unavailable"
	refusalRESP  = "-ERR max number of clients reached"
)

// attacks returns the kinds of abuse for the node's listeners.
func (r *run) attacks() []attack {
	t := r.target
	const size = 1 << 20
	longBatch := fmt.Sprintf("POST /v1/check/batch HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n", size) +
		strings.Repeat(" ", size-100) // without its last 100 bytes
	return []attack{
		r.hold("alone", 0, ""),
		// Idle connections have sent one request.
		r.hold("idle", r.opt.Idle, refusalHTTP, payload{t.HTTP, checkRequest, true}),
		r.hold("idle, Redis protocol", r.opt.Idle, refusalRESP, payload{t.RESP, "PING\r\n", true}),
		// The health listener evicts idle connections for new ones.
		r.hold("idle, probes", r.opt.Idle, "", payload{t.Health, "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n", true}),
		{"hanging watches", r.openWatches, ""},
		r.hold("stalled", r.opt.Stalled, "",
			payload{t.HTTP, "POST /v1/check HTTP/1.1\r\nHost: no", false},
			payload{t.HTTP, "POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: 4000\r\n\r\n{\"rule\":", false},
			payload{t.HTTP, "", false},
			payload{t.RESP, "*2\r\n$4\r\nECHO\r\n$400\r\nx", false},
			payload{t.RESP, "*1", false},
			payload{t.GRPC, http2.ClientPreface + "\x00\x00\x10\x01", false}),
		r.hold("long bodies", r.opt.Bodies, "", payload{t.HTTP, longBatch, false}),
		r.repeat("nonsense", func(ctx context.Context, round int, count func(string)) {
			for _, p := range r.invalid() {
				count(sendInvalid(ctx, p, round%2 == 1))
			}
		}),
		r.repeat("streams reset", func(ctx context.Context, _ int, count func(string)) {
			count(resetStreams(ctx, t.GRPC, r.opt.Timeout))
		}),
		r.hold("afterwards", 0, ""),
	}
}

// repeat is an attack in which each worker runs Rounds rounds and counts their outcomes.
func (r *run) repeat(name string, round func(ctx context.Context, i int, count func(outcome string))) attack {
	return attack{name, func(ctx context.Context) (func(), func() map[string]int) {
		counts := &outcomes{n: make(map[string]int)}
		var working sync.WaitGroup
		for range r.opt.Workers {
			working.Go(func() {
				for i := 0; i < r.opt.Rounds && ctx.Err() == nil; i++ {
					round(ctx, i, counts.add)
				}
			})
		}
		return func() {}, func() map[string]int { working.Wait(); return counts.n }
	}, ""}
}

// invalid returns bytes that are no valid request of the listener they go to.
func (r *run) invalid() (all []payload) {
	const (
		preface     = http2.ClientPreface
		settings    = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		clientHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
		check       = "POST /v1/check HTTP/1.1\r\nHost: node\r\n"
	)
	add := func(addr string, texts ...string) {
		for _, text := range texts {
			all = append(all, payload{addr: addr, bytes: text})
		}
	}
	for _, addr := range []string{r.target.HTTP, r.target.Health} {
		add(addr,
			"GET / HTTP/1.1\r\nHost: node\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n",
			check+"Content-Length: 999999999999\r\n\r\n{",
			check+"Content-Length: -1\r\n\r\n{}",
			check+"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
			check+"Transfer-Encoding: chunked\r\n\r\n4\r\n{\"",
			"POST /v1/check/batch HTTP/1.1\r\nHost: node\r\nContent-Length: 9000\r\n\r\n"+strings.Repeat("[", 8000),
			preface+settings, clientHello, strings.Repeat("\x00", 4<<10))
	}
	add(r.target.RESP, "*1000000000\r\n", "*2\r\n$999999999\r\n", "*-5\r\n*1\r\n$-9\r\n", "*1\r\n$4\r\nPI",
		strings.Repeat("x", 256<<10), strings.Repeat("*1\r\n", 10_000), "POST / HTTP/1.1\r\n\r\n", clientHello)
	add(r.target.GRPC, checkRequest, preface+"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
		preface+settings+"\x00\x10\x00\x01\x04\x00\x00\x00\x01\x83",
		preface+strings.Repeat(settings, 1000), strings.Repeat("\xff", 4<<10))
	return all
}

// replyTimeout bounds the wait for a reply to invalid bytes: the node may wait for more of them.
const replyTimeout = 100 * time.Millisecond

// sendInvalid sends bytes and closes the connection, at once or after the start of a reply.
func sendInvalid(ctx context.Context, p payload, awaitReply bool) (outcome string) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return dialFailed
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(replyTimeout))
	_, _ = io.WriteString(conn, p.bytes)
	if !awaitReply {
		return "closed by the client at once"
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if n > 0 {
		return firstLine(buf[:n])
	}
	if t, ok := err.(net.Error); ok && t.Timeout() {
		return "no answer yet"
	}
	return closed
}
