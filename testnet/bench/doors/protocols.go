package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// protocol is an API of the node.
type protocol struct {
	name   string
	server string  // in addrs
	depth  int     // checks per request
	goal   float64 // maximum of the ratio, or of the node's microseconds if depth > 1
	// dial opens n clients.
	dial func(ctx context.Context, addr string, n, depth int) ([]client, error)
}

// client has one request in flight.
type client interface {
	// check sends depth checks, the first of them for identity n.
	check(n int) error
	io.Closer
}

var protocols = []protocol{
	{"/v1/check", "http", 1, 1.3, dialHTTP(func(b []byte, n int) []byte {
		body := fmt.Appendf(nil, `{"domain":"edge","descriptors":[[{"key":"remote_address","value":"%s"}]],"cost":1}`,
			identity(n))
		b = fmt.Appendf(b, "POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n", len(body))
		return append(b, body...)
	})},
	{"/v1/auth", "http", 1, 1.2, dialHTTP(func(b []byte, n int) []byte {
		return fmt.Appendf(b, "GET /v1/auth HTTP/1.1\r\nHost: node\r\nX-Client: %s\r\nX-Forwarded-Method: GET\r\n"+
			"X-Forwarded-Uri: /buy\r\n\r\n", identity(n))
	})},
	{"ShouldRateLimit", "grpc", 1, 1.15, dialGRPC},
	{"CL.THROTTLE", "resp", 1, 1.15, dialRESP},
	{"CL.THROTTLE, 16 deep", "resp", 16, 1.5, dialRESP},
}

const identities = 10_000

func identity(n int) string {
	n %= identities
	return fmt.Sprintf("203.0.%d.%d", n>>8, n&255)
}

// conn is a connection of one client, with a buffer for requests.
type conn struct {
	net.Conn
	in  *bufio.Reader
	out []byte
}

func (c *conn) send(request []byte) error {
	c.out = request
	_, err := c.Write(request)
	return err
}

// dialEach opens a connection for each of n clients.
func dialEach(ctx context.Context, addr string, n int, newClient func(conn) client) (all []client, err error) {
	for range n {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		all = append(all, newClient(conn{Conn: c, in: bufio.NewReader(c)}))
	}
	return all, nil
}

// httpClient is a minimal HTTP/1.1 client, so that the machine has time for the server.
type httpClient struct {
	conn
	request func(b []byte, n int) []byte
}

func dialHTTP(request func([]byte, int) []byte) func(context.Context, string, int, int) ([]client, error) {
	return func(ctx context.Context, addr string, n, _ int) ([]client, error) {
		return dialEach(ctx, addr, n, func(c conn) client { return &httpClient{c, request} })
	}
}

func (c *httpClient) check(n int) error {
	if err := c.send(c.request(c.out[:0], n)); err != nil {
		return err
	}
	length := 0
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("%w: %q", errLimited, line)
		}
		if len(line) <= 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return err
			}
		}
	}
	_, err := c.in.Discard(length)
	return err
}

// respClient is a minimal client of the Redis protocol.
type respClient struct {
	conn
	depth int
}

func dialRESP(ctx context.Context, addr string, n, depth int) ([]client, error) {
	return dialEach(ctx, addr, n, func(c conn) client { return &respClient{c, depth} })
}

var errLimited = errors.New("the request was not admitted")

func (c *respClient) check(n int) error {
	b := c.out[:0]
	for i := range c.depth {
		key := identity(n + i)
		b = fmt.Appendf(b, "*5\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$8\r\n99999999\r\n$9\r\n100000000\r\n$2\r\n60\r\n",
			len(key), key)
	}
	if err := c.send(b); err != nil {
		return err
	}
	for range c.depth {
		for i := range 6 { // the head, and five integers
			line, err := c.in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if i == 0 && string(line) != "*5\r\n" || i == 1 && string(line) != ":0\r\n" {
				return fmt.Errorf("%w: %q", errLimited, line)
			}
		}
	}
	return nil
}
