package judge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The other way round: a flaw is forgiven when one line explains it.
func TestOneLineExplains(t *testing.T) {
	s := newScript(t)
	s.ask("a", 0, 1, 8, true)
	s.settled(100, 8)
	again := s.see("a", 200, 0, 0)
	s.see("a", 300, 8, 0)
	s.judge("I2@0")
	again.Boot = "2"
	s.judge()

	s = newScript(t)
	lost := s.ask("a", 0, 1, 8, true)
	s.settled(100, 0)
	s.judge("I1@0")
	lost.Allowed, lost.Error = false, "timed out"
	s.judge()
}

// What cannot be judged is an error, and says what is wrong.
func TestWhatCannotBeJudged(t *testing.T) {
	for want, play := range map[string]func(s *script){
		"no decisions": func(s *script) { s.see("a", 0, 0, 0) },
		"pause a ended, but never began": func(s *script) {
			s.ask("a", 0, 1, 1, true)
			s.event(5, false, record.Pause,
				"a")
		},
		"redis-stop began twice": func(s *script) {
			s.ask("a", 0, 1, 1, true)
			s.event(5, true, "redis-stop", "")
			s.event(6, true, "redis-stop", "")
		},
		"partition west ended, but never": func(s *script) {
			s.ask("a", 0, 1, 1, true)
			s.event(9, true, record.Partition, "west")
			s.event(5, false, record.Partition, "west")
		},
		"at most 744h0m0s can be judged":        func(s *script) { s.ask("a", 0, 1, 1, true); s.see("a", 1<<32, 0, 0) },
		`record line 2: decision: node "nodoby`: func(s *script) {},
	} {
		s := newScript(t)
		play(s)
		_, err := Recorded(t, s.header, s.entries)
		if strings.Contains(want, "nodoby") {
			const line = `{"decision":{"sent":1000000000000000,"done":1000000000000000,"node":"nodoby",` +
				`"region":"east","identity":"x","cost":1}}` + "\n"
			_, err = checkText(t, s.header, line)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func checkText(t *testing.T, h record.Header, lines string) (*Report, error) {
	t.Helper()
	h.Version = record.Version
	head, err := json.Marshal(map[string]record.Header{"header": h})
	testkit.Must(t, err)
	r, err := record.NewReader(strings.NewReader(string(head) + "\n" + lines))
	testkit.Must(t, err)
	return Check(r)
}
