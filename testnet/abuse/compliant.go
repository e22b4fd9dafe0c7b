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

// client is a compliant client. It keeps its connection, and opens another one when it breaks.
type client struct {
	addr, request string
	timeout       time.Duration
	readReply     func(*bufio.Reader) error
	closeAlways   bool         // a new connection for each request
	call          func() error // sends the request instead, if set
	conn          io.Closer
	in            *bufio.Reader
}

func (r *run) compliantClients() (all []*client) {
	for i := range r.opt.Clients {
		body := fmt.Sprintf(`{"rule":%q,"identity":"good-%d"}`, r.opt.Rule, i)
		request := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		all = append(all, &client{addr: r.target.HTTP, timeout: r.opt.Timeout, readReply: readHTTP,
			request: request})
		if r.target.RESP != "" {
			all = append(all, &client{addr: r.target.RESP, timeout: r.opt.Timeout, readReply: readRESP,
				request: fmt.Sprintf("CL.THROTTLE good-%d 100 100 60\r\n", i)})
		}
		if r.target.GRPC != "" {
			all = append(all, r.grpcClient(i))
		}
	}
	return append(all, &client{addr: r.target.Health, timeout: r.opt.ProbeTimeout, readReply: readHTTP,
		closeAlways: true, request: "GET /livez HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"})
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

// send sends one request and reads the reply.
func (c *client) send() (err error) {
	if c.call != nil {
		return c.call()
	}
	deadline := time.Now().Add(c.timeout)
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, c.timeout)
		if err != nil {
			return err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	conn := c.conn.(net.Conn)
	_ = conn.SetDeadline(deadline)
	if _, err = io.WriteString(conn, c.request); err == nil {
		err = c.readReply(c.in)
	}
	if err != nil || c.closeAlways {
		c.close()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.addr, err)
	}
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
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
