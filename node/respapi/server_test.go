package respapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// pipes is a listener on virtual time.
type pipes struct{ *testkit.Pipes }

// dial connects. The connection has no deadline: in a bubble, a test that waits for ever is found out.
func (p *pipes) dial(t *testing.T) *connection {
	t.Helper()
	ours := p.Dial()
	d := talk(t, ours)
	_ = ours.SetDeadline(time.Time{})
	return d
}

// onVirtualTime runs a test on virtual time with a server.
func onVirtualTime(t *testing.T, opt Options, f func(t *testing.T, s *Server, p *pipes)) {
	testkit.VirtualTime(t, func(t *testing.T) {
		p := &pipes{testkit.NewPipes()}
		s := New(newBank(), opt)
		serveOn(t, s, p)
		f(t, s, p)
	})
}

func TestIdleClientsAreLeftAloneForMinutes(t *testing.T) {
	onVirtualTime(t, quiet(), func(t *testing.T, s *Server, p *pipes) {
		d := p.dial(t)
		for range 3 {
			d.send("PING\r\n")
			d.expect("+PONG")
			time.Sleep(defaultIdleTimeout*3/4 - time.Second)
		}
		d.send("PING\r\n")
		d.expect("+PONG")
		begun := time.Now()
		d.ended()
		if idle := time.Since(begun); idle < defaultIdleTimeout*3/4 || idle > defaultIdleTimeout {
			t.Errorf("it was ended after %v", idle)
		}
		if s.Stats().Slow != 0 {
			t.Error("to be idle counts as slow")
		}
	})
}

// One byte a second does not keep a connection: a command has its time.
func TestSlowClientsAreEnded(t *testing.T) {
	onVirtualTime(t, quiet(), func(t *testing.T, s *Server, p *pipes) {
		d := p.dial(t)
		d.send("PING\r\n")
		d.expect("+PONG")
		time.Sleep(time.Minute)
		begun := time.Now()
		var typing sync.WaitGroup
		defer typing.Wait()
		typing.Go(func() {
			for _, c := range []byte(array("ECHO", strings.Repeat("x", 100))) {
				if _, err := d.Write([]byte{c}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		d.ended()
		if took := time.Since(begun); took != commandTimeout {
			t.Errorf("it was ended after %v, want %v", took, commandTimeout)
		}
		if got := s.Stats().Slow; got != 1 {
			t.Errorf("%d slow connections are counted", got)
		}
	})
}

// Each command of a pipeline has its own time, also where each packet ends in the midst of one.
func TestSteadyPipelinesAreNotSlow(t *testing.T) {
	onVirtualTime(t, quiet(), func(t *testing.T, s *Server, p *pipes) {
		d := p.dial(t)
		d.send("PI")
		for range 20 {
			time.Sleep(3 * time.Second)
			d.send("NG\r\nPI")
			d.expect("+PONG")
		}
		if s.Stats().Slow != 0 {
			t.Error("it counts as slow")
		}
	})
}

// A client that takes no replies is ended, and does not hold the memory for what it did not take.
func TestClientsThatDoNotReadAreEnded(t *testing.T) {
	onVirtualTime(t, quiet(), func(t *testing.T, s *Server, p *pipes) {
		d := p.dial(t)
		begun := time.Now()
		d.send("PING\r\n")
		for s.Stats().Connections > 0 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(begun); took > writeTimeout+time.Second {
			t.Errorf("it was ended after %v", took)
		}
		if got := s.Stats().Slow; got != 1 {
			t.Errorf("%d slow connections are counted", got)
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	opt := quiet()
	opt.IdleTimeout = 20 * time.Second
	onVirtualTime(t, opt, func(t *testing.T, s *Server, p *pipes) {
		d := p.dial(t)
		d.send("PING\r\n")
		d.expect("+PONG")
		begun := time.Now()
		d.ended()
		if idle := time.Since(begun); idle < opt.IdleTimeout*3/4 || idle > opt.IdleTimeout {
			t.Errorf("it was ended after %v", idle)
		}
	})
}

// Long commands that do not end share what there is for them. Short ones are answered beside them, and long ones later.
func TestLongCommandsUnderWayAreBounded(t *testing.T) {
	onVirtualTime(t, quiet(), func(t *testing.T, s *Server, p *pipes) {
		const most = 2 * (2*maxArg - idleIn)
		s.long = limits.NewBudget("resp", "commands", most, nil)
		text := strings.Repeat("x", maxArg)
		long := array("ECHO", text)
		first, second := p.dial(t), p.dial(t)
		first.send(long[:len(long)-1])
		second.send(long[:len(long)-1])
		if got := s.long.Stats().Used; got != most {
			t.Fatalf("%d bytes are held, want %d", got, most)
		}
		third := p.dial(t)
		third.send("PING\r\n")
		third.expect("+PONG")
		third.send(long[:idleIn])
		third.expect("-OOM too many long commands under way, try again")
		third.ended()
		first.send("\n")
		first.expect(`"` + text + `"`)
		fourth := p.dial(t)
		fourth.send(long)
		fourth.expect(`"` + text + `"`)
		_ = second.Close()
		synctest.Wait()
		if got := s.long.Stats().Used; got != 0 {
			t.Errorf("%d bytes are held in the end", got)
		}
		if got := s.Stats(); got.Failed != 1 || got.Slow != 0 || got.Malformed != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A source whose long commands fill its share leaves those of others alone.
func TestLongCommandsHaveAShare(t *testing.T) {
	r := serve(t, newBank(), quiet())
	greedy := netip.MustParseAddr("127.0.0.2")
	for r.long.Take(greedy, 1<<20) == "" {
	}
	long := array("ECHO", strings.Repeat("x", maxArg))
	for from, want := range map[string]string{"127.0.0.2": "-OOM", "127.0.0.3": "$"} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.Dial("tcp", r.addr)
		testkit.Must(t, err)
		_, _ = io.WriteString(conn, long)
		reply := make([]byte, len(want))
		if _, err := io.ReadFull(conn, reply); err != nil || string(reply) != want {
			t.Errorf("%s gets %q, %v: want %q", from, reply, err, want)
		}
		_ = conn.Close()
	}
}

// waitFor looks every millisecond whether the condition holds.
func waitFor(t testing.TB, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to be")
		}
	}
}

// Many idle clients cost little, and the others are served as before.
func TestManyIdleClients(t *testing.T) {
	const clients = 300
	s := serve(t, newBank(), quiet())
	d := s.dial(t)
	for range clients {
		s.dial(t)
	}
	waitFor(t, func() bool { return s.Stats().Connections == clients+1 })
	d.send("CL.THROTTLE k 15 30 60\r\n")
	d.expect("[0 16 15 -1 2]")
}

// A server that is ended before it begins does not begin.
func TestServeAfterClose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	s := New(newBank(), quiet())
	if err := errors.Join(s.Close(), s.Serve(l)); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was left open: %v", err)
	}
}

func TestShutdown(t *testing.T) {
	onVirtualTime(t, quiet(), func(t *testing.T, s *Server, p *pipes) {
		idle, partial := p.dial(t), p.dial(t)
		idle.send("PING\r\n")
		idle.expect("+PONG")
		partial.send("PING\r\nPI")
		partial.expect("+PONG")
		stopped := make(chan error)
		begun := time.Now()
		go func() { stopped <- s.Shutdown(t.Context()) }()
		idle.ended()
		if took := time.Since(begun); took > drainGrace {
			t.Errorf("an idle client waited %v", took)
		}
		time.Sleep(2 * time.Second)
		partial.send("NG\r\n")
		partial.expect("+PONG")
		partial.ended()
		if err := <-stopped; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(begun); took > 2*time.Second+drainGrace {
			t.Errorf("it took %v", took)
		}
		if got := s.Stats(); got.Connections != 0 || got.Slow != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A pipeline that has been sent when the server closes is answered to its end, however many reads that takes.
func TestShutdownAnswersPipelines(t *testing.T) {
	const commands = 2000
	held := make(chan struct{})
	asked := make(chan struct{}, commands)
	s := serve(t, listener(func([]byte, time.Duration, time.Duration) {
		asked <- struct{}{}
		<-held
	}), quiet())
	d := s.dial(t)
	d.send(strings.Repeat("cl.throttle k 1 1 1\r\n", commands))
	<-asked
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	waitFor(t, s.draining.Load)
	close(held)
	for range commands {
		d.expect("[0 2 2 -1 0]")
	}
	d.ended()
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if conn, err := net.Dial("tcp", s.addr); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

func TestShutdownGivesUp(t *testing.T) {
	onVirtualTime(t, quiet(), func(t *testing.T, s *Server, p *pipes) {
		d := p.dial(t)
		d.send("PI")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		d.ended()
	})
}

// Once the server is about to close, a client has its answer and then the end; who is silent has until the server
// closes.
func TestLeaving(t *testing.T) {
	opt := quiet()
	leaving := make(chan struct{})
	opt.Leaving = leaving
	onVirtualTime(t, opt, func(t *testing.T, s *Server, p *pipes) {
		busy, silent := p.dial(t), p.dial(t)
		busy.send("PING\r\n")
		busy.expect("+PONG")
		synctest.Wait()
		close(leaving)
		busy.send("PING\r\nECHO x\r\n")
		busy.expect("+PONG", `"x"`)
		busy.ended()
		time.Sleep(time.Second)
		late := p.dial(t)
		time.Sleep(time.Second)
		for _, d := range []*connection{silent, late} {
			d.send("PING\r\n")
			d.expect("+PONG")
			d.ended()
		}
	})
}

// failing is a listener whose first attempts fail, as when the process has no file descriptors left.
type failing struct {
	*pipes
	times int
}

func (f *failing) Accept() (net.Conn, error) {
	if f.times--; f.times >= 0 {
		return nil, errors.New("too many open files")
	}
	return f.pipes.Accept()
}

func TestAcceptGoesOn(t *testing.T) {
	testkit.VirtualTime(t, func(t *testing.T) {
		p := &pipes{testkit.NewPipes()}
		begun := time.Now()
		serveOn(t, New(newBank(), quiet()), &failing{p, 3})
		d := p.dial(t)
		if took := time.Since(begun); took != 35*time.Millisecond {
			t.Errorf("after three failures it accepts after %v", took)
		}
		d.send("PING\r\n")
		d.expect("+PONG")
	})
}

func TestPanicEndsOneConnectionOnly(t *testing.T) {
	s := serve(t, listener(func(identity []byte, _, _ time.Duration) {
		if string(identity) == "bad" {
			panic("a bug")
		}
	}), quiet())
	d := s.dial(t)
	d.send("cl.throttle bad 1 1 1\r\n")
	if _, err := io.ReadAll(d); err != nil {
		t.Errorf("the connection did not end: %v", err)
	}
	d = s.dial(t)
	d.send("cl.throttle good 1 1 1\r\n")
	d.expect("[0 2 2 -1 0]")
}

// A client that goes on sending after it was refused reads why.
func TestLastReplyIsRead(t *testing.T) {
	s := serve(t, newBank(), quiet())
	for range 20 {
		d := s.dial(t)
		d.send("*1\r\n$x\r\n")
		for range 10 {
			if _, err := io.WriteString(d, strings.Repeat("x", 10_000)); err != nil {
				break
			}
		}
		d.expect("-ERR Protocol error: invalid bulk length")
	}
}
