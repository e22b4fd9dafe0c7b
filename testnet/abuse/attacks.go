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
	hold := func(name string, n int, payload func(int) payload, refusal string) attack {
		return attack{name, func(ctx context.Context) (func(), func() map[string]int) {
			c := r.hold(ctx, n, payload)
			return c.opened.Wait, c.close
		}, refusal}
	}
	all := []attack{hold("alone", 0, nil, ""), hold("idle", r.opt.Idle, r.idle, refusalHTTP)}
	if r.target.RESP != "" {
		all = append(all, hold("idle, Redis protocol", r.opt.Idle, r.idleRESP, refusalRESP))
	}
	all = append(all, hold("idle, probes", r.opt.Idle, r.idleProbe, ""))
	if r.target.GRPC != "" {
		all = append(all, attack{"hanging watches", r.openWatches, ""})
	}
	all = append(all,
		hold("stalled", r.opt.Stalled, r.stalled, ""),
		hold("long bodies", r.opt.Bodies, r.longBody, ""),
		r.repeat("nonsense", func(ctx context.Context, round int, count func(string)) {
			for _, p := range r.invalid() {
				count(sendInvalid(ctx, p, round%2 == 1))
			}
		}))
	if r.target.GRPC != "" {
		all = append(all, r.repeat("streams reset", func(ctx context.Context, _ int, count func(string)) {
			count(resetStreams(ctx, r.target.GRPC, r.opt.Timeout))
		}))
	}
	return append(all, hold("afterwards", 0, nil, ""))
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

// idle connections to the HTTP listener have sent one request.
func (r *run) idle(int) payload { return payload{r.target.HTTP, checkRequest, true} }

// idleRESP does the same over the Redis protocol.
func (r *run) idleRESP(int) payload { return payload{r.target.RESP, "PING\r\n", true} }

// idleProbe does the same on the health listener, which evicts idle connections for new ones.
func (r *run) idleProbe(int) payload {
	return payload{r.target.Health, "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n", true}
}

// stalled connections to all listeners never complete a request.
func (r *run) stalled(i int) payload {
	all := []payload{
		{r.target.HTTP, "POST /v1/check HTTP/1.1\r\nHost: no", false},
		{r.target.HTTP, "POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: 4000\r\n\r\n{\"rule\":", false},
		{r.target.HTTP, "", false},
	}
	if r.target.RESP != "" {
		all = append(all, payload{r.target.RESP, "*2\r\n$4\r\nECHO\r\n$400\r\nx", false},
			payload{r.target.RESP, "*1", false})
	}
	if r.target.GRPC != "" {
		all = append(all, payload{r.target.GRPC, http2.ClientPreface + "\x00\x00\x10\x01", false})
	}
	return all[i%len(all)]
}

// longBody is a batch of nearly 1 MiB without its last 100 bytes.
func (r *run) longBody(int) payload {
	const size = 1 << 20
	head := fmt.Sprintf("POST /v1/check/batch HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n", size)
	return payload{r.target.HTTP, head + strings.Repeat(" ", size-100), false}
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
			if addr != "" {
				all = append(all, payload{addr: addr, bytes: text})
			}
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
