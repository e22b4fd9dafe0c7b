package abuse

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// payload is what a connection sends.
type payload struct {
	addr, bytes string
	awaitReply  bool // the connection counts as open once the reply begins
}

// outcomes counts connections by how they ended. It is safe for concurrent use.
type outcomes struct {
	mu sync.Mutex
	n  map[string]int
}

func (o *outcomes) add(outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n[outcome]++
}

// The outcomes of a connection. The start of the node's reply precedes the last three.
const (
	dialFailed   = "could not be opened"
	closed       = "closed by the node"
	openToTheEnd = "open to the end"
	closedAtOnce = "closed by the node at once"
	closedLater  = "closed by the node later"
)

// connections are opened, send a payload and stay open until close.
type connections struct {
	outcomes
	opened sync.WaitGroup // until each has sent its payload and received the reply that it waits for
	done   sync.WaitGroup // until each has ended
	cancel context.CancelFunc
}

func newConnections(ctx context.Context, n int) (context.Context, *connections) {
	ctx, cancel := context.WithCancel(ctx)
	c := &connections{outcomes: outcomes{n: make(map[string]int)}, cancel: cancel}
	c.opened.Add(n)
	return ctx, c
}

// close closes the connections and returns their outcomes.
func (c *connections) close() map[string]int {
	c.cancel()
	c.done.Wait()
	return c.n
}

// maxDials is the number of connections that are opened at a time.
const maxDials = 64

// hold is an attack by n connections that send the payloads in turn and stay open.
func (r *run) hold(name string, n int, refusal string, payloads ...payload) attack {
	return attack{name, func(ctx context.Context) (func(), func() map[string]int) {
		ctx, c := newConnections(ctx, n)
		slots := make(chan struct{}, maxDials)
		c.done.Go(func() {
			for i := range n {
				slots <- struct{}{}
				c.done.Go(func() {
					opened := sync.OnceFunc(func() { c.opened.Done(); <-slots })
					c.add(holdOne(ctx, payloads[i%len(payloads)], r.opt.Timeout, opened))
				})
			}
		})
		return c.opened.Wait, c.close
	}, refusal}
}

// holdOne calls opened once.
func holdOne(ctx context.Context, p payload, timeout time.Duration, opened func()) (outcome string) {
	defer opened()
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return dialFailed
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetWriteDeadline(time.Now().Add(timeout))
	_, _ = io.WriteString(conn, p.bytes) // the read below fails too
	if !p.awaitReply {
		opened()
	}
	start := time.Now()
	reply, buf := "", make([]byte, 256)
	for {
		n, err := conn.Read(buf)
		if reply == "" && n > 0 {
			reply = firstLine(buf[:n])
			opened()
		}
		if err != nil {
			return strings.TrimPrefix(reply+", "+ending(ctx, time.Since(start)), ", ")
		}
	}
}

// atOnce is less than any timeout of a node.
const atOnce = time.Second

func ending(ctx context.Context, after time.Duration) string {
	switch {
	case ctx.Err() != nil:
		return openToTheEnd
	case after < atOnce:
		return closedAtOnce
	}
	return closedLater
}

// firstLine returns the first line of a reply, without the HTTP version, or "binary".
func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\r\n"))
	line = bytes.TrimPrefix(line, []byte("HTTP/1.1 "))
	if bytes.ContainsFunc(line, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "binary"
	}
	return string(line[:min(len(line), 60)])
}
