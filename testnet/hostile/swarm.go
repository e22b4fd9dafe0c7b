package hostile

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// swarm is connections that are opened, say something, and stay until they are told to leave.
type swarm struct {
	mu    sync.Mutex
	fates map[string]int // what the node said first, and how it ended, by how many

	opened  sync.WaitGroup // until each has said what it has to say, and heard what it waits for
	staying sync.WaitGroup
	leave   context.CancelFunc
}

// speech is what a connection says.
type speech struct {
	addr, say string
	answered  bool // it waits for the beginning of an answer
}

// dialers is how many connections are opened at a time.
const dialers = 64

// send opens a connection for each of so many speeches.
func (r *run) send(ctx context.Context, n int, of func(i int) speech) *swarm {
	ctx, leave := context.WithCancel(ctx)
	s := &swarm{fates: make(map[string]int), leave: leave}
	room := make(chan struct{}, dialers)
	s.opened.Add(n)
	s.staying.Go(func() {
		for i := range n {
			room <- struct{}{}
			s.staying.Go(func() { s.one(ctx, of(i), r.opt.Patience, func() { s.opened.Done(); <-room }) })
		}
	})
	return s
}

// one is the life of a connection. It calls ready once.
func (s *swarm) one(ctx context.Context, w speech, patience time.Duration, ready func()) {
	ready = sync.OnceFunc(ready)
	defer ready()
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", w.addr)
	if err != nil {
		s.note("could not be opened")
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetWriteDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, w.say) // that it could not be said shows in what is read
	if !w.answered {
		ready()
	}
	begun := time.Now()
	heard, buf := "", make([]byte, 256)
	for {
		n, err := conn.Read(buf)
		if heard == "" && n > 0 {
			heard = firstLine(buf[:n])
			ready()
		}
		if err != nil {
			s.note(strings.TrimPrefix(heard+", "+ending(ctx, time.Since(begun)), ", "))
			return
		}
	}
}

// How a connection ends.
const (
	openToTheEnd = "open to the end"
	closedAtOnce = "closed by the node at once"
	closedLater  = "closed by the node later"
)

// soon is what is later than at once, and sooner than any deadline of a node.
const soon = time.Second

func ending(ctx context.Context, after time.Duration) string {
	switch {
	case ctx.Err() != nil:
		return openToTheEnd
	case after < soon:
		return closedAtOnce
	}
	return closedLater
}

// firstLine is what the node said, without what is the same for all or differs for each.
func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\r\n"))
	line = bytes.TrimPrefix(line, []byte("HTTP/1.1 "))
	for _, c := range line {
		if c < ' ' || c > '~' {
			return "binary"
		}
	}
	return string(line[:min(len(line), 60)])
}

func (s *swarm) note(fate string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates[fate]++
}

// end has all leave and returns what became of them.
func (s *swarm) end() map[string]int {
	s.leave()
	s.staying.Wait()
	return s.fates
}
