package abuse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Latencies of compliant clients.
type Latencies struct {
	Answers int     `json:"answers"`
	Failed  int     `json:"failed"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	Error   string  `json:"error,omitempty"` // the last one
}

// client is a compliant client. send sends one request and reads the reply.
type client struct {
	addr  string
	send  func() error
	close func()
}

func (r *run) compliantClients() (all []*client) {
	for i := range r.opt.Clients {
		body := fmt.Sprintf(`{"rule":%q,"identity":"good-%d"}`, r.opt.Rule, i)
		request := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		throttle := fmt.Sprintf("CL.THROTTLE good-%d 100 100 60\r\n", i)
		all = append(all, newClient(r.target.HTTP, request, true, r.opt.Timeout, readHTTP),
			newClient(r.target.RESP, throttle, true, r.opt.Timeout, readRESP), r.grpcClient(i))
	}
	const probe = "GET /livez HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
	return append(all, newClient(r.target.Health, probe, false, r.opt.ProbeTimeout, readHTTP))
}

// newClient returns a client that keeps its connection, and opens another one when it breaks; without keep, it opens
// one for each request.
func newClient(addr, request string, keep bool, timeout time.Duration, readReply func(*bufio.Reader) error) *client {
	var conn net.Conn
	var in *bufio.Reader
	c := &client{addr: addr, close: func() {
		if conn != nil {
			_ = conn.Close()
			conn = nil
		}
	}}
	c.send = func() (err error) {
		deadline := time.Now().Add(timeout)
		if conn == nil {
			if conn, err = net.DialTimeout("tcp", addr, timeout); err != nil {
				return err
			}
			in = bufio.NewReader(conn)
		}
		_ = conn.SetDeadline(deadline)
		if _, err = io.WriteString(conn, request); err == nil {
			err = readReply(in)
		}
		if err != nil || !keep {
			c.close()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		return nil
	}
	return c
}

func readHTTP(in *bufio.Reader) error {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func readRESP(in *bufio.Reader) error {
	for i := range 6 { // *5 and five integers
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if i == 0 && line != "*5\r\n" {
			return fmt.Errorf("the reply begins with %q", line)
		}
	}
	return nil
}

// measure has each client send that many requests, one per Interval, or as many as it can until enough is closed.
func (r *run) measure(ctx context.Context, clients []*client, requests int, enough <-chan struct{}) (l Latencies) {
	var mu sync.Mutex
	var all []time.Duration
	var sending sync.WaitGroup
	for i, c := range clients {
		sending.Go(func() {
			next := time.Now().Add(r.opt.Interval * time.Duration(i) / time.Duration(len(clients)))
			for range requests {
				if !sleepUntil(ctx, next, enough) {
					return
				}
				start := time.Now()
				err := c.send()
				mu.Lock()
				if err != nil {
					l.Failed++
					l.Error = err.Error()
				} else {
					all = append(all, time.Since(start))
				}
				mu.Unlock()
				next = next.Add(r.opt.Interval)
			}
		})
	}
	sending.Wait()
	slices.Sort(all)
	l.Answers = len(all)
	if n := len(all); n > 0 {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		l.P50, l.P99, l.Max = ms(all[n/2]), ms(all[(n-1)*99/100]), ms(all[n-1])
	}
	return l
}

// sleepUntil sleeps until t, which may be past. It returns false if ctx ended or enough was closed.
func sleepUntil(ctx context.Context, t time.Time, enough <-chan struct{}) bool {
	select {
	case <-ctx.Done():
	case <-enough:
	case <-time.After(time.Until(t)):
		return true
	}
	return false
}
