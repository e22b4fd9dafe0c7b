package hostile

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

// Waits are how long clients that behave waited for their answers.
type Waits struct {
	Answers int     `json:"answers"`
	Failed  int     `json:"failed"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	Error   string  `json:"error,omitempty"` // the last one
}

// client is one that behaves: it asks on a connection that it keeps, and makes another one when that breaks.
type client struct {
	addr, say string
	patience  time.Duration
	reply     func(*bufio.Reader) error // reads one answer
	conn      net.Conn
	in        *bufio.Reader
}

// clients returns so many for each door that has one.
func (r *run) clients() (all []*client) {
	for i := range r.opt.Clients {
		body := fmt.Sprintf(`{"rule":%q,"identity":"good-%d"}`, r.opt.Rule, i)
		all = append(all, &client{addr: r.target.HTTP, patience: r.opt.Patience, reply: httpReply,
			say: fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n%s", len(body), body)})
		if r.target.RESP != "" {
			all = append(all, &client{addr: r.target.RESP, patience: r.opt.Patience, reply: respReply,
				say: fmt.Sprintf("CL.THROTTLE good-%d 100 100 60\r\n", i)})
		}
	}
	return all
}

func httpReply(in *bufio.Reader) error {
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

func respReply(in *bufio.Reader) error {
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

// ask asks once.
func (c *client) ask() (err error) {
	if c.conn == nil {
		if c.conn, err = net.DialTimeout("tcp", c.addr, c.patience); err != nil {
			c.conn = nil
			return err
		}
		c.in = bufio.NewReader(c.conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(c.patience))
	if _, err = io.WriteString(c.conn, c.say); err == nil {
		err = c.reply(c.in)
	}
	if err != nil {
		c.hangUp()
	}
	return err
}

func (c *client) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// measure has all clients ask, each so many times and as often as the options say, or until enough is closed, and returns how long they
// waited.
func (r *run) measure(ctx context.Context, all []*client, times int, enough <-chan struct{}) Waits {
	var mu sync.Mutex
	var w Waits
	var took []time.Duration
	var asking sync.WaitGroup
	for i, c := range all {
		asking.Go(func() {
			next := time.Now().Add(r.opt.Every * time.Duration(i) / time.Duration(len(all)))
			for range times {
				if !until(ctx, next, enough) {
					return
				}
				begun := time.Now()
				err := c.ask()
				mu.Lock()
				if err != nil {
					w.Failed++
					w.Error = err.Error()
				} else {
					took = append(took, time.Since(begun))
				}
				mu.Unlock()
				next = next.Add(r.opt.Every)
			}
		})
	}
	asking.Wait()
	slices.Sort(took)
	w.Answers = len(took)
	if n := len(took); n > 0 {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		w.P50, w.P99, w.Max = ms(took[n/2]), ms(took[(n-1)*99/100]), ms(took[n-1])
	}
	return w
}

// until waits until a time comes, which may have passed, and reports whether to go on: ctx has not ended, and enough is not closed.
func until(ctx context.Context, t time.Time, enough <-chan struct{}) bool {
	select {
	case <-ctx.Done():
	case <-enough:
	case <-time.After(time.Until(t)):
		return true
	}
	return false
}
