package strict

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// lossy is a proxy in front of a server that loses every n-th answer of it, with all that follow on the connection:
// it closes the connection, or every fourth time says nothing more.
type lossy struct {
	net.Listener
	server  atomic.Value // its address, a string
	every   atomic.Int64 // 0: none
	answers atomic.Int64
	lost    atomic.Int64
	mu      sync.Mutex
	open    []net.Conn
	work    sync.WaitGroup
}

func newLossy(t *testing.T, server string, every int64) *lossy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	p := &lossy{Listener: listener}
	p.server.Store(server)
	p.every.Store(every)
	p.work.Go(p.accept)
	t.Cleanup(func() {
		p.Close()
		p.mu.Lock()
		for _, c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *lossy) accept() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server.Load().(string))
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, client, server)
		p.mu.Unlock()
		p.work.Go(func() {
			_, _ = io.Copy(server, client) // ends with either connection
			server.Close()
		})
		p.work.Go(func() { p.answer(client, server) })
	}
}

func (p *lossy) answer(client, server net.Conn) {
	defer client.Close()
	from := bufio.NewReader(server)
	for {
		answer, err := readAnswer(from)
		if err != nil {
			return
		}
		if every := p.every.Load(); every > 0 && p.answers.Add(1)%every == 0 {
			if p.lost.Add(1)%4 > 0 {
				return
			}
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}

// readAnswer reads one answer of the Redis protocol.
func readAnswer(from *bufio.Reader) ([]byte, error) {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch {
	case line[0] == '$' && n >= 0:
		text := make([]byte, n+2)
		if _, err := io.ReadFull(from, text); err != nil {
			return nil, err
		}
		return append(line, text...), nil
	case line[0] == '*':
		for range n {
			part, err := readAnswer(from)
			if err != nil {
				return nil, err
			}
			line = append(line, part...)
		}
		return line, nil
	case strings.ContainsRune("$+-:", rune(line[0])):
		return line, nil
	}
	return nil, fmt.Errorf("not an answer: %q", line)
}
