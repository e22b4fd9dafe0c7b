package regions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Replies are bounded one by one, however the stream is cut, and before what they announce has come.
func TestReplyBound(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("*1\r\n", maxReplyDepth)
	for stream, ok := range map[string]bool{
		"+OK\r\n-ERR no\r\n:5\r\n$2\r\n\r\n\r\n$-1\r\n*-1\r\n*0\r\n":         true,
		strings.Repeat("$500\r\n"+strings.Repeat("*", 500)+"\r\n", 9):        true,
		"*2\r\n$1\r\n$\r\n*2\r\n:1\r\n:2\r\n+OK\r\n":                         true,
		strings.Repeat("*2\r\n*1\r\n:1\r\n*0\r\n", 50):                       true,
		"%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n_\r\n>1\r\n=3\r\nabc\r\n#t\r\n,1\r\n": true,
		"%8\r\n":                          false,
		deep + ":1\r\n" + deep + ":1\r\n": true,
		deep + "*1\r\n":                   false,
		"$1001\r\n":                       false,
		"$999999999999\r\n":               false,
		"$9223372036854775807\r\n":        false,
		"*9223372036854775807\r\n":        false,
		"*16\r\n":                         false,
		"*3\r\n$450\r\n" + strings.Repeat("x", 452) + "$450\r\n": false,
		"$-2\r\n":                               false,
		"$x\r\n":                                false,
		"|1\r\n":                                false,
		"\r\n":                                  false,
		"+" + strings.Repeat("x", maxReplyLine): false,
	} {
		for _, chunk := range []int{1, 3, len(stream)} {
			r, rest := replyBound{most: 1000}, []byte(stream)
			var err error
			for err == nil && len(rest) > 0 {
				n := min(chunk, len(rest))
				err, rest = r.read(rest[:n]), rest[n:]
			}
			if (err == nil) != ok {
				t.Errorf("%.60q in pieces of %d: %v", stream, chunk, err)
			}
			if ok && (r.size != 0 || r.deep != 0 || r.text != 0) {
				t.Errorf("%.60q in pieces of %d ends within a reply: %+v", stream, chunk, r)
			}
		}
	}
}

// A server that announces more than memory has is refused, by every kind of client.
func TestHostileLengths(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"$999999999999\r\n", "*999999999999\r\n", "%99999999999\r\n",
		strings.Repeat("*1\r\n", 1<<16)} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		testkit.Must(t, err)
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write(bytes.Repeat([]byte(reply), 3))
				_ = conn.Close()
			}
		}()
		cfg := DefaultRedisConfig(listener.Addr().String())
		cfg.CallTimeout = 10 * time.Second
		client, err := cfg.Client(1)
		testkit.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err = client.Get(ctx, "k").Err()
		if err == nil || errors.Is(err, redis.Nil) {
			t.Errorf("%.20q: %v", reply, err)
		}
		cancel()
		_ = client.Close()
		_ = listener.Close()
	}
}

// FuzzReplyBound holds that what passes announces no more than it may, whatever comes.
func FuzzReplyBound(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n:1\r\n"), uint8(3))
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		once, twice := replyBound{most: 1000}, replyBound{most: 1000}
		at := min(int(cut), len(stream))
		err := once.read(stream)
		err2 := twice.read(stream[:at])
		if err2 == nil {
			err2 = twice.read(stream[at:])
		}
		if fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Errorf("%q: %v, cut at %d: %v", stream, err, at, err2)
		}
		if once.size > 1000+len(stream) || once.deep > maxReplyDepth || once.text > 1002 {
			t.Errorf("%q: %+v", stream, once)
		}
	})
}
