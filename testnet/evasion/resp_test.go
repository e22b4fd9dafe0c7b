package evasion

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node"
)

// reply is what a server says: an array's elements, or an error.
type reply struct {
	err     string
	numbers []int64
}

// readReply reads one, of those types that the replies here may have. Of maps and strings it only finds the end.
func readReply(in *bufio.Reader) (reply, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return reply{}, err
	}
	rest := strings.TrimRight(line[1:], "\r\n")
	switch line[0] {
	case '-':
		return reply{err: rest}, nil
	case '+', '_':
		return reply{}, nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return reply{}, fmt.Errorf("%q: %w", line, err)
	}
	switch line[0] {
	case ':':
		return reply{numbers: []int64{n}}, nil
	case '$':
		_, err := io.CopyN(io.Discard, in, n+2)
		return reply{}, err
	case '%':
		n *= 2
	case '*':
	default:
		return reply{}, fmt.Errorf("unknown reply %q", line)
	}
	var all reply
	for range n {
		r, err := readReply(in)
		if err != nil {
			return reply{}, err
		}
		all.numbers = append(all.numbers, r.numbers...)
	}
	return all, nil
}

// exchange writes the pieces, says that no more will come, and returns all replies.
func exchange(addr string, pieces ...string) (replies []reply, err error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	for _, p := range pieces {
		if _, err := io.WriteString(conn, p); err != nil {
			break // a server that refuses the first piece need not read the others
		}
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	in := bufio.NewReader(conn)
	for {
		r, err := readReply(in)
		switch opErr := (*net.OpError)(nil); {
		case err == io.EOF, errors.As(err, &opErr) && !opErr.Timeout():
			return replies, nil
		case err != nil:
			return replies, err
		}
		replies = append(replies, r)
	}
}

// left is what the plain request's bucket of a key admits still, by the plain way to ask.
func left(t *testing.T, addr, key string) uint64 {
	t.Helper()
	replies, err := exchange(addr, array(append(throttle(key), "0")...))
	if err != nil || len(replies) != 1 || len(replies[0].numbers) != 5 {
		t.Fatalf("%+v, %v", replies, err)
	}
	return uint64(replies[0].numbers[2])
}

// TestRedis: whatever form CL.THROTTLE has, it charges the plain one's bucket or is refused.
func TestRedis(t *testing.T) {
	n := startWith(t, func(cfg *node.Config) { cfg.RESP = "127.0.0.1:0" })
	addr := n.Addr("resp")
	all := throttleForms()
	var refused []string
	for _, c := range all {
		if c.key == "" && !strings.HasSuffix(c.name, ": empty") {
			c.key = "k"
		}
		before := left(t, addr, c.key)
		replies, err := exchange(addr, c.pieces...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var admitted, denied, errs uint64
		for _, r := range replies {
			switch {
			case r.err != "":
				errs++
			case len(r.numbers) == 5 && r.numbers[0] == 0:
				admitted++
			case len(r.numbers) == 5:
				denied++
			}
		}
		if strings.HasPrefix(c.name, "after a peek") {
			admitted-- // which is one itself
		}
		charged := before - left(t, addr, c.key)
		switch {
		case c.refused && admitted > 0:
			t.Errorf("%s: %d are admitted: %+v", c.name, admitted, replies)
		case charged != admitted*c.quantity:
			t.Errorf("%s: %d are charged for %d admitted: %+v", c.name, charged, admitted, replies)
		case admitted+denied+errs == 0 && !slices.Contains(silent, c.name):
			t.Errorf("%s: no answer: %+v", c.name, replies)
		case admitted == 0 && c.name == "the plain one":
			t.Fatalf("%s: %+v", c.name, replies)
		case admitted == 0 && denied == 0:
			refused = append(refused, c.name)
		}
	}
	t.Logf("%d forms, of which %d are refused: %q", len(all), len(refused), refused)
}
