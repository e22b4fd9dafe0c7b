package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/edgelimit/edgelimit/testnet/bench/rig"
)

// protocol is an API of the node.
type protocol struct {
	name   string
	server string  // in addrs
	depth  int     // checks per request
	goal   float64 // maximum of the ratio, or of the node's microseconds if depth > 1
	rate   int     // checks per second of the steady load
	// dial opens clients that send as many checks as the protocol is deep, the first of them for identity n.
	dial func(ctx context.Context, addr string) ([]rig.Client, error)
}

var protocols = []protocol{
	{"/v1/check", "http", 1, 1.3, steadyRate, dial(1, answerHTTP, func(b []byte, n int) []byte {
		body := fmt.Appendf(nil, `{"domain":"edge","descriptors":[[{"key":"remote_address","value":"%s"}]],"cost":1}`,
			identity(n))
		b = fmt.Appendf(b, "POST /v1/check HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n", len(body))
		return append(b, body...)
	})},
	{"/v1/auth", "http", 1, 1.2, steadyRate, dial(1, answerHTTP, func(b []byte, n int) []byte {
		return fmt.Appendf(b, "GET /v1/auth HTTP/1.1\r\nHost: node\r\nX-Client: %s\r\nX-Forwarded-Method: GET\r\n"+
			"X-Forwarded-Uri: /buy\r\n\r\n", identity(n))
	})},
	{"ShouldRateLimit", "grpc", 1, 1.15, steadyRate, dialGRPC},
	{"CL.THROTTLE", "resp", 1, 1.15, steadyRate, dial(1, answerRESP, throttle)},
	{"CL.THROTTLE, 16 deep", "resp", 16, 1.5, steadyRate, dial(16, answerRESP, throttle)},
	{"reverse proxy", "proxy", 1, 1.1, proxyRate, dial(1, answerHTTP, func(b []byte, n int) []byte {
		return fmt.Appendf(b, "GET /buy HTTP/1.1\r\nHost: shop\r\nX-Client: %s\r\n\r\n", identity(n))
	})},
	{"reverse proxy, three layers", "proxy", 1, 1.25, proxyRate, dial(1, answerHTTP, func(b []byte, n int) []byte {
		return fmt.Appendf(b, "GET /three HTTP/1.1\r\nHost: shop\r\nX-Client: %s\r\nX-Key: k%d\r\n\r\n", identity(n),
			n%100)
	})},
}

const identities = 10_000

func identity(n int) string {
	n %= identities
	return fmt.Sprintf("203.0.%d.%d", n>>8, n&255)
}

// dial opens clients with a connection each. They are minimal, so that the machine has time for the server. request
// appends a check for identity n, answer reads its answer.
func dial(depth int, answer func(*bufio.Reader) error, request func(b []byte, n int) []byte) func(
	context.Context, string) ([]rig.Client, error) {
	return func(ctx context.Context, addr string) (all []rig.Client, err error) {
		for range rig.NumClients {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, errors.Join(err, rig.CloseAll(all))
			}
			in, out := bufio.NewReader(conn), []byte(nil)
			all = append(all, rig.Client{Close: conn.Close, Check: func(n int) error {
				out = out[:0]
				for i := range depth {
					out = request(out, n+i)
				}
				_, err := conn.Write(out)
				for i := 0; i < depth && err == nil; i++ {
					err = answer(in)
				}
				return err
			}})
		}
		return all, nil
	}
}

var errLimited = errors.New("the request was not admitted")

func answerHTTP(in *bufio.Reader) error {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
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
	_, err := in.Discard(length)
	return err
}

// throttle appends a command of the Redis protocol.
func throttle(b []byte, n int) []byte {
	key := identity(n)
	return fmt.Appendf(b, "*5\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$8\r\n99999999\r\n$9\r\n100000000\r\n"+
		"$2\r\n60\r\n", len(key), key)
}

func answerRESP(in *bufio.Reader) error {
	for i := range 6 { // the head, and five integers
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if i == 0 && string(line) != "*5\r\n" || i == 1 && string(line) != ":0\r\n" {
			return fmt.Errorf("%w: %q", errLimited, line)
		}
	}
	return nil
}
