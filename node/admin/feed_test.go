package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edgelimit/node/status"
)

// counted counts how often it is asked for its status.
type counted struct {
	*observed
	asked atomic.Int64
	rules int
}

func (c *counted) Status() status.Status {
	c.asked.Add(1)
	s := c.observed.Status()
	for i := range c.rules {
		s.Limits = append(s.Limits, status.Limit{Rule: fmt.Sprint(i), Recent: &status.Recent{Step: 5000,
			Allowed: make([]uint64, 60), Denied: append(make([]uint64, 59), uint64(i))}})
	}
	return s
}

// view opens a stream until ctx ends, and returns what it got.
func view(ctx context.Context, api http.Handler, path string) func() string {
	r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:7949"+path, nil)
	r.Header.Set("Accept", "text/event-stream")
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		api.ServeHTTP(w, r)
	}()
	return func() string { <-done; return w.Body.String() }
}

// Ten viewers cost the node one snapshot an interval, whenever they came, and none costs nothing. Each gets each.
func TestViewersShareSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &counted{observed: newObserved()}
		api := unguarded(node)
		time.Sleep(time.Hour)
		if asked := node.asked.Load(); asked != 0 {
			t.Errorf("without viewers the node is asked %d times", asked)
		}
		ctx, end := context.WithCancel(t.Context())
		var views []func() string
		for range 10 {
			views = append(views, view(ctx, api, "/api/status"))
			time.Sleep(130 * time.Millisecond)
		}
		const intervals = 30
		time.Sleep(intervals*feedInterval - 1300*time.Millisecond)
		synctest.Wait()
		end()
		if asked := node.asked.Load(); asked != intervals+1 {
			t.Errorf("in %d intervals the node is asked %d times", intervals, asked)
		}
		for i, got := range views {
			if n := strings.Count(got(), "event: status\ndata: "); n != intervals+1 {
				t.Errorf("viewer %d gets %d statuses in %d intervals", i, n, intervals)
			}
		}
		time.Sleep(time.Hour)
		if asked := node.asked.Load(); asked != intervals+1 {
			t.Errorf("after they left the node is asked %d times more", asked-intervals-1)
		}
	})
}

// A stream has the rules that a page shows: those that deny most, and the one with the largest bound.
func TestFeedHasTheBusiestRules(t *testing.T) {
	node := &counted{observed: newObserved(), rules: 1000}
	limits := node.Status().Limits
	limits[7].Bound = 2
	got := busiest(limits)
	if len(got) != feedLimits || got[0].Rule != "7" || got[1].Rule != "999" || got[feedLimits-1].Rule != "951" {
		t.Errorf("%d rules, %s, %s to %s", len(got), got[0].Rule, got[1].Rule, got[len(got)-1].Rule)
	}
	if len(limits) != 1000 || limits[0].Rule != "0" {
		t.Error("it changes the node's own")
	}
	if few := busiest(limits[:3]); len(few) != 3 || few[0].Rule != "2" {
		t.Errorf("of three: %+v", few)
	}
}

// A stream of events sends again what was repeated meanwhile, without waking for each repetition.
func TestStreamReportsRepeatedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserved()
		ctx, end := context.WithCancel(t.Context())
		got := view(ctx, unguarded(o), "/api/events")
		for range 20 {
			o.events.Add(status.Event{Text: "again", Time: time.Now()})
			synctest.Wait()
		}
		time.Sleep(2*keepAlive + time.Second)
		end()
		text := got()
		if n := strings.Count(text, "\nid: "); n != 8 {
			t.Errorf("%d events are sent, want the 8 that are kept", n)
		}
		if n := strings.Count(text, `"repeated":12`); n != 1 {
			t.Errorf("%d times it says that the last one was repeated 12 times: %s", n, text)
		}
	})
}

// The CPU time of ten viewers of a node with 1000 rules, in encoding and sending, as a part of one core. What the node
// itself takes for a snapshot: BenchmarkStatus in package node.
func BenchmarkTenViewers(b *testing.B) {
	node := &counted{observed: newObserved(), rules: 1000}
	f := newFeed(node)
	var viewers sync.WaitGroup
	for b.Loop() {
		f.tick = -1 // the next interval
		for range 10 {
			viewers.Go(func() {
				event, _, err := f.frame()
				if err != nil {
					b.Error(err)
				}
				_, _ = io.Discard.Write(event)
			})
		}
		viewers.Wait()
	}
	b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N)/feedInterval.Seconds(), "%core")
}
