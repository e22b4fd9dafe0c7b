package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	request = "POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: 2\r\n\r\n{}"
	// refusedHTTP and refusedRESP are what a client hears that there is no room for.
	refusedHTTP = "503 Service Unavailable"
	refusedRESP = "-ERR max number of clients reached"
)

// idle are connections to the HTTP door that have asked once.
func (r *run) idle(int) speech { return speech{r.target.HTTP, request, true} }

// idleRESP are the same for the Redis protocol.
func (r *run) idleRESP(int) speech { return speech{r.target.RESP, "PING\r\n", true} }

// stalled are connections to all doors that do not end what they begin.
func (r *run) stalled(i int) speech {
	all := []speech{
		{r.target.HTTP, "POST /v1/check HTTP/1.1\r\nHost: no", false},
		{r.target.HTTP, "POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: 4000\r\n\r\n{\"rule\":", false},
		{r.target.HTTP, "", false},
	}
	if r.target.RESP != "" {
		all = append(all, speech{r.target.RESP, "*2\r\n$4\r\nECHO\r\n$400\r\nx", false}, speech{r.target.RESP, "*1", false})
	}
	if r.target.GRPC != "" {
		all = append(all, speech{r.target.GRPC, preface + "\x00\x00\x10\x01", false})
	}
	return all[i%len(all)]
}

// longBody is a batch of nearly a MiB, whose end never comes.
func (r *run) longBody(int) speech {
	const size = 1 << 20
	return speech{r.target.HTTP, fmt.Sprintf("POST /v1/check/batch HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat(" ", size-100)), false}
}

// nonsense is what is no request, by the door that it is said to.
func (r *run) nonsense() (all []speech) {
	for _, addr := range []string{r.target.HTTP, r.target.Health} {
		for _, say := range []string{
			"GET / HTTP/1.1\r\nHost: node\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
			"POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: 999999999999\r\n\r\n{",
			"POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: -1\r\n\r\n{}",
			"POST /v1/check HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
			"POST /v1/check HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"",
			"POST /v1/check/batch HTTP/1.1\r\nHost: node\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("[", 8000),
			preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
			"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
			strings.Repeat("\x00", 4<<10),
		} {
			all = append(all, speech{addr: addr, say: say})
		}
	}
	if r.target.RESP != "" {
		for _, say := range []string{
			"*1000000000\r\n", "*2\r\n$999999999\r\n", "*-5\r\n*1\r\n$-9\r\n", "*1\r\n$4\r\nPI", strings.Repeat("x", 256<<10),
			strings.Repeat("*1\r\n", 10_000), "POST / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		} {
			all = append(all, speech{addr: r.target.RESP, say: say})
		}
	}
	if r.target.GRPC != "" {
		for _, say := range []string{
			request, preface + "\xff\xff\xff\x00\x00\x00\x00\x00\x01", preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x10\x00\x01\x04\x00\x00\x00\x01\x83",
			preface + strings.Repeat("\x00\x00\x00\x04\x00\x00\x00\x00\x00", 1000), strings.Repeat("\xff", 4<<10),
		} {
			all = append(all, speech{addr: r.target.GRPC, say: say})
		}
	}
	return all
}

// babble says all kinds of nonsense, in so many rounds by so many workers, hanging up after each: at once, or, every other time, after the
// node's first words or its hanging up.
func (r *run) babble(ctx context.Context) map[string]int {
	fates := make(map[string]int)
	var mu sync.Mutex
	r.work(ctx, func(round int) {
		for _, s := range r.nonsense() {
			fate := utter(ctx, s, round%2 == 1)
			mu.Lock()
			fates[fate]++
			mu.Unlock()
		}
	})
	return fates
}

// hearFor is how long what the node says of nonsense is waited for: it may wait for more itself.
const hearFor = 100 * time.Millisecond

func utter(ctx context.Context, s speech, listen bool) (fate string) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return "could not be opened"
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(hearFor))
	_, _ = io.WriteString(conn, s.say)
	if !listen {
		return "left at once"
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	switch {
	case n > 0:
		return firstLine(buf[:n])
	case isTimeout(err):
		return "no answer yet"
	}
	return "closed by the node"
}

func isTimeout(err error) bool {
	t, ok := err.(net.Error)
	return ok && t.Timeout()
}

// work has each of the workers do so many rounds.
func (r *run) work(ctx context.Context, round func(int)) {
	var working sync.WaitGroup
	for range r.opt.Workers {
		working.Go(func() {
			for i := 0; i < r.opt.Rounds && ctx.Err() == nil; i++ {
				round(i)
			}
		})
	}
	working.Wait()
}
