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

// A protocol is a way to ask for checks.
type protocol struct {
	name   string
	server string  // in addrs
	deep   int     // checks that a client asks for at once
	most   float64 // the goal: of the ratio, or the node's microseconds where deep
	// connect opens n clients.
	connect func(ctx context.Context, addr string, n, deep int) ([]client, error)
}

// A client has one question at a time.
type client interface {
	// ask asks for as many checks as the protocol is deep, the first of the n-th client.
	ask(n int) error
	io.Closer
}

var protocols = []protocol{
	{"/v1/check", "http", 1, 1.3, dialHTTP(func(b []byte, n int) []byte {
		body := fmt.Appendf(nil, `{"domain":"edge","descriptors":[[{"key":"remote_address","value":"%s"}]],"cost":1}`, who(n))
		b = fmt.Appendf(b, "POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
		return append(b, body...)
	})},
	{"/v1/auth", "http", 1, 1.2, dialHTTP(func(b []byte, n int) []byte {
		return fmt.Appendf(b, "GET /v1/auth HTTP/1.1\r\nHost: node\r\nX-Client: %s\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /buy\r\n\r\n", who(n))
	})},
	{"ShouldRateLimit", "grpc", 1, 1.15, connectGRPC},
	{"CL.THROTTLE", "resp", 1, 1.15, eachItsOwn(dialRedis)},
	{"CL.THROTTLE, 16 deep", "resp", 16, 1.5, eachItsOwn(dialRedis)},
}

// clients is of how many identities is asked.
const clients = 10_000

// who is the n-th identity.
func who(n int) string {
	n %= clients
	return fmt.Sprintf("203.0.%d.%d", n>>8, n&255)
}

// eachItsOwn gives each client a connection of its own.
func eachItsOwn(dial func(ctx context.Context, addr string, deep int) (client, error)) func(context.Context, string, int, int) ([]client, error) {
	return func(ctx context.Context, addr string, n, deep int) (all []client, err error) {
		for range n {
			c, err := dial(ctx, addr, deep)
			if err != nil {
				return nil, errors.Join(err, disconnect(all))
			}
			all = append(all, c)
		}
		return all, nil
	}
}

func dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// httpClient speaks HTTP/1.1 with no more than it takes.
type httpClient struct {
	net.Conn
	in      *bufio.Reader
	out     []byte
	request func(b []byte, n int) []byte
}

func dialHTTP(request func([]byte, int) []byte) func(context.Context, string, int, int) ([]client, error) {
	return eachItsOwn(func(ctx context.Context, addr string, _ int) (client, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &httpClient{conn, bufio.NewReader(conn), nil, request}, nil
	})
}

func (c *httpClient) ask(n int) error {
	c.out = c.request(c.out[:0], n)
	if _, err := c.Write(c.out); err != nil {
		return err
	}
	length := 0
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("the answer is %q", line)
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

// redisClient speaks the Redis protocol with no more than it takes.
type redisClient struct {
	net.Conn
	in   *bufio.Reader
	out  []byte
	deep int
}

func dialRedis(ctx context.Context, addr string, deep int) (client, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &redisClient{conn, bufio.NewReader(conn), nil, deep}, nil
}

var errLimited = errors.New("the answer is not that of an admitted request")

func (c *redisClient) ask(n int) error {
	c.out = c.out[:0]
	for i := range c.deep {
		key := who(n + i)
		c.out = fmt.Appendf(c.out, "*5\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$8\r\n99999999\r\n$9\r\n100000000\r\n$2\r\n60\r\n", len(key), key)
	}
	if _, err := c.Write(c.out); err != nil {
		return err
	}
	for range c.deep {
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
