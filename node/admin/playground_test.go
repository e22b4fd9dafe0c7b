package admin

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// boundary is where fixed windows of 10 s begin.
var boundary = time.Unix(1_800_000_000, 0)

func play(t *testing.T, p *playground, session string, limit uint64, n int) map[string]playgroundState {
	t.Helper()
	states, err := p.play(PlaygroundRequest{Session: session, Limit: limit, Window: 10_000, Requests: n})
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[string]playgroundState)
	for _, s := range states {
		by[s.Algorithm] = s
	}
	return by
}

const viewer = "00000000000000ff"

// Eight requests at once under a limit of 5 in 10 s: five pass everywhere, in the queue one after the other. From there
// on the algorithms differ, and the levels fall as each of them says.
func TestPlaygroundComparesAlgorithms(t *testing.T) {
	now := boundary.Add(6 * time.Second)
	p := &playground{now: func() time.Time { return now }}
	all := play(t, p, viewer, 5, 8)
	if len(all) != 6 {
		t.Fatalf("%d algorithms: %v", len(all), all)
	}
	for name, s := range all {
		for i, d := range s.Decisions {
			if d.Allowed != (i < 5) || d.Allowed != (d.RetryAfter == 0) {
				t.Errorf("%s: request %d of 8: %+v", name, i+1, d)
			}
		}
		if len(s.Decisions) != 8 || s.Level != 1 || s.Remaining != 0 || s.Next.Allowed {
			t.Errorf("%s is not full: %+v", name, s)
		}
	}
	if q := all["leaky_queue"].Decisions; q[0].Delay != 0 || q[4].Delay != 8000 {
		t.Errorf("in the queue: %+v", q)
	}
	if w := all["fixed_window"]; w.Elapsed != 6000 || w.ResetAfter != 4000 {
		t.Errorf("the fixed window: %+v", w)
	}
	for _, step := range []struct {
		after time.Duration
		want  map[string]float64
	}{
		{5 * time.Second, map[string]float64{"fixed_window": 0, "sliding_window": 1, "sliding_log": 1,
			"token_bucket": 0.5, "leaky_bucket": 0.5, "leaky_queue": 0.5}},
		{11 * time.Second, map[string]float64{"fixed_window": 0, "sliding_window": 0, "sliding_log": 0,
			"token_bucket": 0, "leaky_bucket": 0, "leaky_queue": 0}},
	} {
		now = boundary.Add(6*time.Second + step.after)
		levels := make(map[string]float64)
		for name, s := range play(t, p, viewer, 5, 0) {
			levels[name] = s.Level
			if len(s.Decisions) != 0 {
				t.Errorf("a look decides: %+v", s)
			}
		}
		if !reflect.DeepEqual(levels, step.want) {
			t.Errorf("after %v the levels are %v, want %v", step.after, levels, step.want)
		}
	}
}

// Neither another session nor another limit sees what was spent.
func TestPlaygroundSessionsAreApart(t *testing.T) {
	p := &playground{now: func() time.Time { return boundary }}
	play(t, p, viewer, 5, 8)
	for session, limit := range map[string]uint64{viewer: 6, "0000000000000001": 5} {
		for name, s := range play(t, p, session, limit, 0) {
			if s.Level != 0 || s.Remaining != limit {
				t.Errorf("%s of %s: %+v", name, session, s)
			}
		}
	}
}

// However many sessions, limits and windows somebody makes up, they take no more than the table may, and nothing is
// left that grows.
func TestPlaygroundIsBounded(t *testing.T) {
	now := boundary
	p := &playground{now: func() time.Time { return now }}
	var attackers sync.WaitGroup
	for a := range 4 {
		attackers.Go(func() {
			for i := range 2500 {
				_, err := p.play(PlaygroundRequest{Session: fmt.Sprintf("%04x%012x", a, i), Requests: 5,
					Limit: uint64(1 + i%maxPlaygroundLimit), Window: int64(2+i%59) * 1000})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	attackers.Wait()
	if s := p.table.Stats(); s.Bytes > counters.MinMemory || s.Evicted == 0 || s.Keys == 0 {
		t.Errorf("10,000 sessions leave %+v", s)
	}
	if s := play(t, p, "ffffffffffffffff", 5, 8)["token_bucket"]; s.Level != 1 {
		t.Errorf("in a full table: %+v", s)
	}
}

func TestPlaygroundRefuses(t *testing.T) {
	const good = `{"session":"00000000000000ff","limit":5,"window_ms":10000,"requests":8}`
	ask := func(method, kind, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1:7949/api/playground", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		unguarded(&operator{}).ServeHTTP(w, r)
		return w
	}
	w := ask("POST", "application/json", good)
	var answer map[string][]playgroundState
	if err := json.Unmarshal(w.Body.Bytes(), &answer); w.Code != 200 || err != nil || len(answer["algorithms"]) != 6 {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	with := func(old, value string) string { return strings.Replace(good, old, value, 1) }
	for _, body := range []string{"", "{}", "[]", good + good, with(viewer, "ff"), with(viewer, "+0000000000000ff"),
		with(viewer, "00000000000000fg"), with(viewer, strings.Repeat("f", 17)), with(":5", ":0"), with(":5", ":51"),
		with(":5", ":-1"), with("10000", "1000"), with("10000", "61000"), with("10000", "2500"), with(":8", ":21"),
		with(":8", ":-1"), with("10000", "9223372036854775807"), with("10000", "-9223372036854775808"),
		with(":8", `:8,"rule":"login"`), with(":5", ":1e3")} {
		w := ask("POST", "application/json", body)
		if w.Code != 400 || !strings.Contains(w.Body.String(), `"detail":"`) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if w := ask("POST", "text/plain", good); w.Code != 415 {
		t.Errorf("a form: %d", w.Code)
	}
	if w := ask("GET", "application/json", good); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d", w.Code)
	}
	if w := ask("POST", "application/json", with("limit", strings.Repeat("l", maxBody))); w.Code != 413 {
		t.Errorf("a long body: %d", w.Code)
	}
}
